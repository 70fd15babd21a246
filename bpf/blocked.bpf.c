// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The threads that wait uninterruptibly, and where in the kernel: an iterator, which runs only when it is read. Each is
 * a line with its number, followed by a line for each function it is in, innermost first. The kernel names functions by
 * itself ("%ps"), so that user space needs no table of symbols, and no privilege.
 */
#include "kernel_types.h"

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define TASK_UNINTERRUPTIBLE 0x0002 /* include/linux/sched.h: what /proc shows as D, unless it is also */
#define TASK_NOLOAD 0x0400 /* an idle thread of the kernel's */
#define FRAMES 32

SEC("iter/task")
int blocked_tasks(struct bpf_iter__task *context)
{
	struct seq_file *out = context->meta->seq;
	struct task_struct *task = context->task;
	__u64 frames[FRAMES];
	long bytes;

	if (!task || (task->__state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) != TASK_UNINTERRUPTIBLE)
		return 0;
	bytes = bpf_get_task_stack(task, frames, sizeof(frames), 0);
	BPF_SEQ_PRINTF(out, "%d\n", task->pid);
	for (int frame = 0; frame < FRAMES; frame++) {
		if ((frame + 1) * (long)sizeof(frames[0]) > bytes)
			break;
		BPF_SEQ_PRINTF(out, " %ps\n", (void *)frames[frame]);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
