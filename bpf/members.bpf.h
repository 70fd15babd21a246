/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The processes that are the runtime or descend from it, by process id. */
#ifndef CRISCOPE_MEMBERS_BPF_H
#define CRISCOPE_MEMBERS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Far above the shims, their helpers and the container mains of a node (the kubelet allows a few hundred pods at most).
 * Allocated beforehand: memory asked for while a process is being forked may be refused. */
#define MEMBERS 16384

struct member {
	__u64 mount_namespace; /* of the runtime this process descends from; 0 until its first fork or exec */
	__u32 contained; /* it runs a container's own program: reported, but its children are not */
	__u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MEMBERS);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

#endif
