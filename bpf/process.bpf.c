// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs that the runtime's descendants execute, and how they end: shims, runc, CNI plugins, conmon, and the main
 * process of each container. What a container's own processes start is not followed: it is no step of the runtime, and
 * a busy shell script would drown the rest.
 *
 * Descent is inherited when a process is forked, since shims are given to init as children right afterwards. User space
 * names the runtimes that run already; a runtime started later is named by socket.bpf.c when it serves its socket.
 */
#include "kernel_types.h"
#include "members.bpf.h"
#include "ring.bpf.h"

#include <bpf/bpf_tracing.h>

#define ARGV_BYTES 4096
#define ENV_BYTES 4096
#define VARIABLE_BYTES 1024 /* CNI_ARGS, the longest, has about 300: namespace, pod name, id and uid */
#define VARIABLES 512 /* the runtime's whole environment is handed to a plugin, the CNI_ ones last */
#define SIGNAL_GROUP_EXIT 4 /* include/linux/sched/signal.h */

enum program { PROGRAM_FORK = 0, PROGRAM_EXEC = 1, PROGRAM_EXIT = 2 };

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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
