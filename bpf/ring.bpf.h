/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one ring buffer of all programs, and the counters of what it refused. */
#ifndef CRISCOPE_RING_BPF_H
#define CRISCOPE_RING_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel_types.h"
#include "records.h"

#define PROGRAMS 4 /* most programs in one object; each has its own line of counters */

const volatile __u64 ring_bytes = 16 << 20; /* user space sets it to what it made the ring */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

static __always_inline struct counters *counters_of(__u32 program)
{
	return bpf_map_lookup_elem(&counters, &program);
}

/*
 * Waking the reader for each record would cost more than the record. It looks every 100 ms anyway, so wake it only
 * when the fill level passes a multiple of one sixteenth. (The kernel's adaptive wake-up does not do here: it stays
 * silent while records sent with NO_WAKEUP lie before the new one.)
 */
static __always_inline __u64 wake_up(__u64 size)
{
	__u64 used = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);

	return (used ^ (used + size)) & ~(ring_bytes / 16 - 1) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Returns true when the ring took the record; otherwise it is counted, with the `bytes` it covered. */
static __always_inline bool emit(void *record, __u64 size, __u32 program, __u32 bytes)
{
	struct counters *lost;

	if (!bpf_ringbuf_output(&ring, record, size, wake_up(size)))
		return 1;
	lost = counters_of(program);
	if (lost) {
		lost->lost_records++;
		lost->lost_bytes += bytes;
	}
	return 0;
}

/* Of the current task. */
static __always_inline void describe(struct record_head *head, __u8 kind)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	__u64 ids = bpf_get_current_pid_tgid();

	head->time = bpf_ktime_get_ns();
	head->pid = ids >> 32;
	head->tid = ids;
	bpf_probe_read_kernel(head->comm, sizeof(head->comm), leader->comm);
	head->kind = kind;
	head->side = 0;
	head->direction = 0;
}

#endif
