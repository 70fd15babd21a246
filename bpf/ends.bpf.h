/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which sockets are wanted, and what is known of each end of a wanted connection. */
#ifndef CRISCOPE_ENDS_BPF_H
#define CRISCOPE_ENDS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel_types.h"
#include "members.bpf.h"
#include "places.bpf.h"
#include "records.h"
#include "ring.bpf.h"

#define WANTED_PATHS 1024 /* patterns; user space refuses more */

/* A path, or its beginning: user space puts the NUL into the key of a whole path. */
struct wanted_key {
	__u32 bits;
	char path[PATH_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, WANTED_PATHS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct wanted_key);
	__type(value, struct wanted);
} wanted_paths SEC(".maps");

/* Unwanted sockets are looked at again when the table of places has changed, unless they have no file. */
enum verdict { VERDICT_NONE = 0, VERDICT_WANTED = 1, VERDICT_UNWANTED = 2, VERDICT_NEVER = 3 };

/*
 * One end of a connection. It lies in the socket and is freed with it: nothing leaks, and no address or descriptor
 * that is used again can be taken for an earlier one.
 */
struct end {
	__u64 connection; /* 0: not numbered yet */
	__u64 sent;
	__u64 received;
	__u8 verdict;
	__u8 side;
	__u8 opened; /* the ring took the record of it */
	__u8 closed;
	__u8 names; /* as in struct opened_record */
	__u8 padding[3];
	__u32 place; /* as in struct wanted */
	__u32 generation; /* of the table of places that did not have it */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct end);
} ends SEC(".maps");

__u64 connections; /* numbers given so far */

static __always_inline struct unix_sock *peer_of(struct unix_sock *u)
{
	struct sock *peer = u->peer;

	return peer ? bpf_skc_to_unix_sock(peer) : 0;
}

/* Returns the bytes of the path, 0 when there is none; the rest of PATH_BYTES becomes NUL. */
static __always_inline __u32 read_path(char *path, struct unix_address *address)
{
	__u32 bytes;

	__builtin_memset(path, 0, PATH_BYTES);
	if (!address)
		return 0;
	bytes = address->len - sizeof(__u16);
	if (bytes > PATH_BYTES || bpf_probe_read_kernel(path, bytes, address->name[0].sun_path))
		return 0;
	return bytes;
}

static __always_inline struct wanted *wanted_by(struct unix_address *address)
{
	struct wanted_key key = { .bits = 8 * PATH_BYTES };

	return read_path(key.path, address) ? bpf_map_lookup_elem(&wanted_paths, &key) : 0;
}

/* Is it a socket of a server that is wanted? Notes in `end` by what. */
static __noinline struct wanted *find_wanted(struct unix_sock *u, struct end *end)
{
	struct wanted *by_text = wanted_by(u->addr), *by_place = 0;
	struct dentry *dentry = u->path.dentry;
	__u8 names = 0;

	if (dentry) {
		end->verdict = VERDICT_UNWANTED;
		by_place = wanted_at(dentry, &names);
		if (by_place)
			end->place = by_place->place;
	}
	if (by_text)
		return by_text;
	end->names = names;
	return by_place;
}

/* Made when it is not there. The other end may be making it just now, on another CPU: then the kernel refuses. */
static __always_inline struct end *end_of(struct sock *sk)
{
	struct end *end = bpf_sk_storage_get(&ends, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!end)
		end = bpf_sk_storage_get(&ends, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	return end;
}

/*
 * The number of the connection that a server's end belongs to. Both ends ask here, so they agree however they race;
 * numbers are given once, so sockets whose memory is used again never meet.
 */
static __always_inline __u64 number_of(struct sock *server)
{
	struct end *end = end_of(server);
	__u64 number;

	if (!end)
		return 0;
	number = end->connection;
	if (number)
		return number;
	number = __sync_fetch_and_add(&connections, 1) + 1;
	__sync_val_compare_and_swap(&end->connection, 0, number);
	return end->connection;
}

/*
 * The first operation of a socket that has an address or a peer with one: decides for the rest of its life, or until
 * there are other places. A server's sockets carry the address it bound, a client's has the server's as its peer.
 */
static __noinline int admit(struct sock *sk, __u32 program)
{
	struct unix_sock *u = bpf_skc_to_unix_sock(sk), *peer;
	struct counters *counters = counters_of(program);
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	/* Read before the table is, so that a change meanwhile is noticed. */
	struct end found = { .verdict = VERDICT_NEVER, .generation = generation }, *end;
	struct member member = {};
	struct wanted *wanted;
	__u64 connection = 0;

	if (!u || !counters)
		return 0;
	peer = peer_of(u);
	wanted = find_wanted(u, &found);
	if (wanted) {
		found.side = SIDE_SERVER;
		connection = number_of(sk);
	} else if (peer) {
		wanted = find_wanted(peer, &found);
		if (wanted)
			connection = number_of(&peer->sk);
	}
	end = end_of(sk);
	if (!end || (wanted && !connection)) {
		counters->refused += !!wanted;
		return 0;
	}
	end->generation = found.generation;
	if (!wanted) {
		end->verdict = found.verdict;
		return 0;
	}
	end->connection = connection;
	end->side = found.side;
	end->place = found.place;
	end->names = found.names;
	end->verdict = VERDICT_WANTED;
	if (wanted->runtime && found.side == SIDE_SERVER &&
	    bpf_map_update_elem(&members, &pid, &member, BPF_ANY))
		counters->refused++;
	return 0;
}

#endif
