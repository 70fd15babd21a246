// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs that the runtime's descendants execute, and how they end: shims, runc, CNI plugins, conmon, and the main
 * process of each container. What a container's own processes start is not followed: it is no step of the runtime, and
 * a busy shell script would drown the rest.
 *
 * Descent is inherited when a process is forked, since shims are given to init as children right afterwards. User space
 * names the runtimes that run already; a runtime started later is named by socket.bpf.c when it serves its socket.
 *
 * Processes killed for want of memory are told whoever they are: it is rare, and concerns the whole node.
 */
#include "kernel_types.h"
#include "members.bpf.h"
#include "ring.bpf.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define ARGV_BYTES 4096
#define ENV_BYTES 4096
#define VARIABLE_BYTES 1024 /* CNI_ARGS, the longest, has about 300: namespace, pod name, id and uid */
#define VARIABLES 512 /* the runtime's whole environment is handed to a plugin, the CNI_ ones last */
#define SIGNAL_GROUP_EXIT 4 /* include/linux/sched/signal.h */

#define CGROUP_BYTES 1024 /* Kubernetes' longest is about 250 */
#define NAME_BYTES 256 /* NAME_MAX and a NUL */
#define CGROUP_LEVELS 16 /* Kubernetes' are 5 deep; a container may nest its own */
#define UNKNOWN (-1)

enum program { PROGRAM_FORK = 0, PROGRAM_EXEC = 1, PROGRAM_EXIT = 2, PROGRAM_OOM = 3 };

/* enum in include/linux/mm_types_task.h */
enum { MM_FILEPAGES = 0, MM_ANONPAGES = 1, MM_SHMEMPAGES = 3 };

struct exec_scratch {
	__u64 variable; /* user address of the next one */
	__u64 variables_end;
	__u32 filled;
	__u32 padding;
	struct exec_record exec;
	char strings[ARGV_BYTES + ENV_BYTES];
	struct exit_record exit;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__type(value, struct exec_scratch);
} scratches SEC(".maps");

struct oom_scratch {
	struct oom_record oom;
	char cgroup[CGROUP_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct oom_scratch);
} oom_scratches SEC(".maps");

static __always_inline struct exec_scratch *scratch_of(__u32 program)
{
	return bpf_map_lookup_elem(&scratches, &program);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->tgid, child_pid = child->tgid;
	struct member *ancestor, member = {};
	struct counters *counters;

	if (child->pid != child->tgid) /* a thread */
		return 0;
	ancestor = bpf_map_lookup_elem(&members, &parent_pid);
	if (!ancestor || ancestor->contained)
		return 0;
	if (!ancestor->mount_namespace)
		ancestor->mount_namespace = (__u64)parent->nsproxy->mnt_ns;
	member.mount_namespace = ancestor->mount_namespace;
	if (bpf_map_update_elem(&members, &child_pid, &member, BPF_ANY)) {
		counters = counters_of(PROGRAM_FORK);
		if (counters)
			counters->refused++;
	}
	return 0;
}

/* Keeps the next environment string when it is a CNI variable; any other is overwritten by the one after it. */
static long keep_variable(__u32 step, void *unused)
{
	struct exec_scratch *s = scratch_of(PROGRAM_EXEC);
	__u32 filled;
	char *string;
	long bytes;

	if (!s || s->variable >= s->variables_end)
		return 1;
	filled = s->filled;
	if (filled > ARGV_BYTES + ENV_BYTES - VARIABLE_BYTES)
		return 1;
	string = s->strings + filled;
	bytes = bpf_probe_read_user_str(string, VARIABLE_BYTES, (void *)s->variable);
	if (bytes <= 0)
		return 1;
	s->variable += bytes;
	if (string[0] == 'C' && string[1] == 'N' && string[2] == 'I' && string[3] == '_')
		s->filled += bytes;
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, int old_pid, struct linux_binprm *binary)
{
	struct mm_struct *mm = task->mm;
	__u32 pid = task->tgid;
	struct member *member = bpf_map_lookup_elem(&members, &pid);
	__u64 mount_namespace, bytes;
	struct exec_scratch *s;

	if (!member)
		return 0;
	mount_namespace = (__u64)task->nsproxy->mnt_ns;
	if (!member->mount_namespace)
		member->mount_namespace = mount_namespace;
	if (member->mount_namespace != mount_namespace)
		member->contained = 1;
	s = scratch_of(PROGRAM_EXEC);
	if (!s || !mm)
		return 0;
	describe(&s->exec.head, RECORD_EXEC);
	s->exec.forked = task->group_leader->start_time;
	s->exec.ppid = task->real_parent->tgid;
	bytes = mm->arg_end - mm->arg_start;
	if (bytes > ARGV_BYTES)
		bytes = ARGV_BYTES;
	if (bpf_probe_read_user(s->strings, bytes, (void *)mm->arg_start))
		bytes = 0;
	s->exec.argv_bytes = bytes;
	s->filled = bytes;
	s->variable = mm->env_start;
	s->variables_end = mm->env_end;
	bpf_loop(VARIABLES, keep_variable, 0, 0);
	s->exec.env_bytes = s->filled - bytes;
	bytes = s->filled;
	if (bytes <= ARGV_BYTES + ENV_BYTES)
		emit(&s->exec, sizeof(s->exec) + bytes, PROGRAM_EXEC, 0);
	return 0;
}

/* Fires for each thread; the process is gone with the last, and its status is its leader's or that of exit_group(2). */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	struct signal_struct *signal = task->signal;
	struct exec_scratch *s;
	__u32 pid = task->tgid;

	if (signal->live.counter || bpf_map_delete_elem(&members, &pid))
		return 0;
	s = scratch_of(PROGRAM_EXIT);
	if (!s)
		return 0;
	describe(&s->exit.head, RECORD_EXIT);
	s->exit.ppid = task->real_parent->tgid;
	s->exit.status = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : task->group_leader->exit_code;
	emit(&s->exit, sizeof(s->exit), PROGRAM_EXIT, 0);
	return 0;
}

/*
 * The memory cgroup of either hierarchy: the one whose limit counts, and, in version 2, the container's own even when
 * the container has cgroups of its own below that. Returns the bytes of its names, leaf first.
 */
static __always_inline __u32 cgroup_names(struct task_struct *task, char *names)
{
	struct css_set *set = task->cgroups;
	struct cgroup_subsys_state *state = 0;
	struct kernfs_node *node;
	__u32 filled = 0;
	long bytes;

	bpf_probe_read_kernel(&state, sizeof(state),
			      &set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)]);
	node = BPF_CORE_READ(state, cgroup, kn);
	for (int level = 0; level < CGROUP_LEVELS && node; level++) {
		if (filled > CGROUP_BYTES - NAME_BYTES)
			break;
		bytes = bpf_probe_read_kernel_str(names + filled, NAME_BYTES, BPF_CORE_READ(node, name));
		if (bytes <= 0)
			break;
		filled += bytes;
		if (bpf_core_field_exists(node->__parent))
			node = BPF_CORE_READ(node, __parent);
		else
			node = BPF_CORE_READ((struct kernfs_node___before_6_15 *)node, parent);
	}
	return filled;
}

/* As the kernel's own log tells them: without what each CPU has not handed in yet, which may be below zero. */
static __always_inline __s64 pages(__s64 counted)
{
	return counted > 0 ? counted : 0;
}

/* Also fires for a process that is ending already and is let use the last memory to do so. */
SEC("tp_btf/mark_victim")
int process_oom(__u64 *arguments)
{
	__u32 key = 0;
	struct oom_scratch *s = bpf_map_lookup_elem(&oom_scratches, &key);
	struct task_struct *victim;
	__u64 bytes;

	if (!s)
		return 0;
	describe(&s->oom.head, RECORD_OOM);
	if (bpf_core_field_exists(struct trace_event_raw_mark_victim, uid)) {
		victim = (struct task_struct *)arguments[0];
		s->oom.head.pid = victim->tgid;
		s->oom.head.tid = victim->pid;
		bpf_probe_read_kernel(s->oom.head.comm, COMM_BYTES, victim->group_leader->comm);
		s->oom.uid = arguments[1];
		s->oom.anonymous_pages = pages(victim->mm->rss_stat[MM_ANONPAGES].count);
		s->oom.file_pages = pages(victim->mm->rss_stat[MM_FILEPAGES].count);
		s->oom.shared_pages = pages(victim->mm->rss_stat[MM_SHMEMPAGES].count);
		s->oom.cgroup_bytes = cgroup_names(victim, s->cgroup);
	} else { /* the kernel tells the number of a thread of it, and nothing more */
		s->oom.head.pid = s->oom.head.tid = arguments[0];
		__builtin_memset(s->oom.head.comm, 0, COMM_BYTES);
		s->oom.uid = UNKNOWN;
		s->oom.anonymous_pages = s->oom.file_pages = s->oom.shared_pages = UNKNOWN;
		s->oom.cgroup_bytes = 0;
	}
	bytes = s->oom.cgroup_bytes;
	if (bytes <= CGROUP_BYTES)
		emit(&s->oom, sizeof(s->oom) + bytes, PROGRAM_OOM, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
