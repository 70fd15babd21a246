// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What wanted unix stream sockets send and receive.
 *
 * The tracepoints sock_send_length and sock_recv_length (kernel 6.3) fire once for each operation of any socket of the
 * machine, after it was done; so a socket nobody wants must be left at once (find_end). The bytes are read from user
 * memory, where the system call's registers say they are.
 */
#include "arguments.bpf.h"
#include "ends.bpf.h"
#include "ring.bpf.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* A record is sent off when it holds FULL_PAYLOAD, and a piece has at most PIECE bytes: their sum is what the work space
 * must hold (a per-CPU map's value has at most 32 KiB, PCPU_MIN_UNIT_SIZE). */
#define PIECE (16 << 10)
#define FULL_PAYLOAD (8 << 10)
#define MOST_PAYLOAD (PIECE + FULL_PAYLOAD)
/* Four times the largest message the kubelet accepts (16 MiB). What one operation moves beyond it is not captured: the
 * CPU does nothing else meanwhile. */
#define OPERATION_PAYLOAD (64 << 20)
#define PRESSED_PAYLOAD 4096 /* when the ring fills up: headers and small messages still fit */

/* kernel/bpf/helpers.c, Linux 6.2 */
extern void *bpf_rdonly_cast(void *object, __u32 type) __ksym;

/* Payload kept of what a socket receives: the bytes were seen when they were sent, only their time is news. */
const volatile __u32 receive_payload = 512;

enum program { PROGRAM_SEND = 0, PROGRAM_RECEIVE = 1 };

/* Work space; one for each program, because a program never interrupts itself on a CPU but may interrupt another. */
struct scratch {
	struct arguments call;
	__u64 next_segment;
	__u64 from; /* what is left of the current segment */
	__u64 from_bytes;
	__u32 program;
	__u32 left; /* of the operation, to be captured */
	__u32 trimmed; /* bytes of the operation that no record tells, by reason; counted with the record that covers them */
	__u32 unreadable;
	__u32 foreign;
	__u32 padding;
	struct opened_record opened;
	char path[PLACE_NAMES * PLACE_NAME_BYTES + 4];
	struct closed_record closed;
	struct data_record data;
	__u8 payload[MOST_PAYLOAD];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline bool ring_filled_beyond(__u64 bytes)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > bytes;
}

static __always_inline void flush(struct scratch *s, struct counters *counters)
{
	__u32 captured = s->data.captured;

	if (captured > MOST_PAYLOAD)
		return;
	if (emit(&s->data, sizeof(s->data) + captured, s->program, s->data.length)) {
		counters->trimmed_bytes += s->trimmed;
		counters->unreadable_bytes += s->unreadable;
		counters->foreign_bytes += s->foreign;
	}
	s->data.offset += s->data.length;
	s->data.length = 0;
	s->data.captured = 0;
	s->trimmed = 0;
	s->unreadable = 0;
	s->foreign = 0;
}

/* Copies a segment, or a piece of it, to the record. Returns 1 when there is no more. */
static long copy_piece(__u32 step, __u32 *program)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, program);
	struct counters *counters = counters_of(*program);
	struct user_iovec segment;
	__u32 filled, bytes;

	if (!s || !counters)
		return 1;
	if (!s->from_bytes) {
		if (s->next_segment >= s->call.iov_count ||
		    bpf_probe_read_user(&segment, sizeof(segment),
					(void *)(s->call.iov + s->next_segment * sizeof(segment))))
			return 1;
		s->next_segment++;
		s->from = segment.base;
		s->from_bytes = segment.length;
		if (!segment.length)
			return 0;
	}
	filled = s->data.captured;
	if (filled >= FULL_PAYLOAD)
		return 1;
	bytes = s->left < PIECE ? s->left : PIECE;
	if (bytes > s->from_bytes)
		bytes = s->from_bytes;
	barrier_var(bytes); /* the verifier forgets the bound of a minimum of 64 bits: test what is known once more */
	if (bytes > PIECE)
		return 1;
	s->from += bytes;
	s->from_bytes -= bytes;
	s->left -= bytes;
	s->data.length += bytes;
	if (bpf_probe_read_user(s->payload + filled, bytes, (void *)(s->from - bytes))) {
		s->unreadable += bytes;
		flush(s, counters); /* what is captured are a record's first bytes, so a hole ends it */
	} else {
		s->data.captured = filled + bytes;
		if (s->data.captured < FULL_PAYLOAD)
			return !s->left;
		flush(s, counters);
	}
	if (s->left && ring_filled_beyond(ring_bytes / 4 * 3)) {
		s->trimmed += s->left;
		s->left = 0;
	}
	return !s->left;
}

/*
 * How much of an operation to capture. When the reader does not keep up, first what was received is left out (the
 * sender's record has the same bytes), then the rest of long sends; only a full ring refuses records.
 */
static __always_inline __u32 payload_limit(struct scratch *s, __u32 bytes)
{
	__u32 limit = bytes < OPERATION_PAYLOAD ? bytes : OPERATION_PAYLOAD;

	if (s->program == PROGRAM_RECEIVE) {
		if (bytes > receive_payload)
			bytes = receive_payload;
		limit = ring_filled_beyond(ring_bytes / 2) ? 0 : bytes;
	} else if (limit > PRESSED_PAYLOAD && ring_filled_beyond(ring_bytes / 4 * 3)) {
		limit = PRESSED_PAYLOAD;
	}
	s->trimmed = bytes - limit;
	return limit;
}

static __always_inline void capture(struct sock *sk, struct scratch *s, __u32 bytes, struct counters *counters)
{
	__u64 end = s->data.offset + bytes;
	__u32 program = s->program;

	s->left = 0;
	s->trimmed = 0;
	s->unreadable = 0;
	s->foreign = 0;
	s->next_segment = 0;
	s->from_bytes = 0;
	s->data.length = 0;
	s->data.captured = 0;
	if (!read_arguments(&s->call, sk)) {
		s->foreign = bytes;
	} else {
		s->left = payload_limit(s, bytes);
		if (!s->call.iov) {
			s->from = s->call.buffer.base;
			s->from_bytes = s->call.buffer.length;
		}
	}
	s->data.fd = s->call.fd;
	s->data.syscall = s->call.syscall;
	/* Each step ends a segment or copies a whole piece; one is enough as a rule. */
	if (s->left && !copy_piece(0, &program))
		bpf_loop(UIO_MAXIOV + s->left / PIECE + 1, copy_piece, &program, 0);
	s->unreadable += s->left; /* the vector itself could not be read */
	s->data.length = end - s->data.offset;
	if (s->data.length)
		flush(s, counters);
}

/* The end of a wanted connection, or nothing. The order of the tests is the price every other socket pays; so no helper
 * is called before a path is found, but the kernel's type is asserted (bpf_rdonly_cast compiles to nothing). */
static __always_inline struct end *find_end(struct sock *sk, __u32 program)
{
	struct unix_sock *u;
	struct end *end;

	if (sk->__sk_common.skc_family != AF_UNIX || sk->sk_type != SOCK_STREAM)
		return 0;
	u = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct unix_sock));
	if (!u->addr) {
		u = bpf_rdonly_cast(u->peer, bpf_core_type_id_kernel(struct unix_sock));
		if (!u || !u->addr)
			return 0;
	}
	end = bpf_sk_storage_get(&ends, sk, 0, 0);
	if (!end || end->verdict == VERDICT_NONE ||
	    (end->verdict == VERDICT_UNWANTED && end->generation != generation)) {
		admit(sk, program);
		end = bpf_sk_storage_get(&ends, sk, 0, 0);
	}
	return end && end->verdict == VERDICT_WANTED ? end : 0;
}

/* Says once who is at this end; again at its next operation as long as the ring was full. */
static __always_inline bool announce(struct sock *sk, struct end *end, struct scratch *s)
{
	struct unix_sock *u = bpf_skc_to_unix_sock(sk);
	struct dentry *dentry;
	__u32 length;

	if (u && end->side == SIDE_CLIENT)
		u = peer_of(u);
	if (!u)
		return 0;
	describe(&s->opened.head, RECORD_OPENED);
	s->opened.head.side = end->side;
	s->opened.connection = end->connection;
	s->opened.place = end->place;
	dentry = u->path.dentry;
	s->opened.names = dentry ? end->names : 0;
	s->opened.directory = dentry ? dentry->d_parent->d_inode->i_ino : 0;
	s->opened.device = dentry ? dentry->d_parent->d_inode->i_sb->s_dev : 0;
	length = s->opened.names ? read_names(s->path, dentry, s->opened.names) : read_path(s->path, u->addr);
	if (length > sizeof(s->path))
		return 0;
	s->opened.path_length = length;
	end->opened = emit(&s->opened, sizeof(s->opened) + length, s->program, 0);
	return end->opened;
}

/* End of file, or the errno that says the other end is gone; once. */
static __always_inline void announce_close(struct end *end, struct scratch *s, int error)
{
	describe(&s->closed.head, RECORD_CLOSED);
	s->closed.head.side = end->side;
	s->closed.connection = end->connection;
	s->closed.error = error;
	end->closed = emit(&s->closed, sizeof(s->closed), s->program, 0);
}

static __always_inline int moved(struct sock *sk, int result, __u32 program)
{
	struct end *end = find_end(sk, program);
	struct counters *counters;
	struct scratch *s;

	if (!end)
		return 0;
	counters = counters_of(program);
	s = bpf_map_lookup_elem(&scratches, &program);
	if (!s || !counters)
		return 0;
	s->program = program;
	if (result <= 0) {
		if ((end->opened || announce(sk, end, s)) && !end->closed)
			announce_close(end, s, -result);
		return 0;
	}
	s->data.offset = __sync_fetch_and_add(program == PROGRAM_SEND ? &end->sent : &end->received, result);
	if (!end->opened && !announce(sk, end, s)) {
		/* Bytes of a connection nobody heard of are of no use; their place in the offsets stays. */
		counters->lost_records++;
		counters->lost_bytes += result;
		return 0;
	}
	describe(&s->data.head, RECORD_DATA);
	s->data.head.side = end->side;
	s->data.head.direction = program == PROGRAM_SEND ? DIRECTION_SEND : DIRECTION_RECEIVE;
	s->data.connection = end->connection;
	capture(sk, s, result, counters);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_send, struct sock *sk, int result, int flags)
{
	if (result > 0 || result == -EPIPE || result == -ECONNRESET)
		return moved(sk, result, PROGRAM_SEND);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_receive, struct sock *sk, int result, int flags)
{
	if (flags & MSG_PEEK)
		return 0;
	/* A read of no bytes also returns 0: the end is where the peer shut down and nothing is left. */
	if (result > 0 || result == -ECONNRESET ||
	    (result == 0 && sk->sk_shutdown & RCV_SHUTDOWN && !sk->sk_receive_queue.qlen))
		return moved(sk, result, PROGRAM_RECEIVE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
