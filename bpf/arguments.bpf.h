/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the bytes of the current system call lie in user memory: from the registers it was entered with. */
#ifndef CRISCOPE_ARGUMENTS_BPF_H
#define CRISCOPE_ARGUMENTS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel_types.h"

/* Numbers: arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h. */
#if defined(__TARGET_ARCH_x86)
#define NR_READ 0
#define NR_WRITE 1
#define NR_READV 19
#define NR_WRITEV 20
#define NR_SENDTO 44
#define NR_RECVFROM 45
#define NR_SENDMSG 46
#define NR_RECVMSG 47
#define TS_COMPAT 2 /* arch/x86/include/asm/thread_info.h: entered as a 32-bit system call */

#define SYSCALL_NUMBER(regs) ((__s32)(regs)->orig_ax)
#define SYSCALL_ARGUMENT_1(regs) ((regs)->di)
#define SYSCALL_ARGUMENT_2(regs) ((regs)->si)
#define SYSCALL_ARGUMENT_3(regs) ((regs)->dx)
#define SYSCALL_IS_32_BIT(task, regs) ((task)->thread_info.status & TS_COMPAT)
#else
#define NR_READ 63
#define NR_WRITE 64
#define NR_READV 65
#define NR_WRITEV 66
#define NR_SENDTO 206
#define NR_RECVFROM 207
#define NR_SENDMSG 211
#define NR_RECVMSG 212
#define PSR_MODE32_BIT 0x10 /* arch/arm64/include/uapi/asm/ptrace.h */

#define SYSCALL_NUMBER(regs) ((regs)->syscallno)
#define SYSCALL_ARGUMENT_1(regs) ((regs)->orig_x0)
#define SYSCALL_ARGUMENT_2(regs) ((regs)->regs[1])
#define SYSCALL_ARGUMENT_3(regs) ((regs)->regs[2])
#define SYSCALL_IS_32_BIT(task, regs) ((regs)->pstate & PSR_MODE32_BIT)
#endif

struct user_iovec {
	__u64 base;
	__u64 length;
};

struct user_msghdr {
	__u64 name;
	__u64 name_length; /* 32 bits and padding */
	__u64 iov;
	__u64 iov_count;
};

struct arguments {
	__s32 syscall;
	__s32 fd; /* -1: the buffer is not known */
	__u64 iov; /* user address of a vector, or 0 when there is one plain buffer */
	__u64 iov_count;
	struct user_iovec buffer;
};

/*
 * Is `fd` of this task really this socket? Otherwise the registers belong to another call: io_uring completes an
 * operation on any socket at the end of whatever system call the task made.
 */
static __always_inline bool descriptor_is(struct task_struct *task, struct sock *sk, __u32 fd)
{
	struct fdtable *table = task->files->fdt;
	struct file *file = 0;

	if (fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file && file == sk->sk_socket->file;
}

/* False when the system call is none of the eight on this socket, or its message header cannot be read. */
static __always_inline bool read_arguments(struct arguments *call, struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct user_msghdr message;

	call->fd = -1;
	call->iov = 0;
	call->iov_count = 0;
	if (SYSCALL_IS_32_BIT(task, regs)) {
		call->syscall = -1;
		return 0;
	}
	call->syscall = SYSCALL_NUMBER(regs);
	if (!descriptor_is(task, sk, SYSCALL_ARGUMENT_1(regs)))
		return 0;
	switch (call->syscall) {
	case NR_READ:
	case NR_WRITE:
	case NR_SENDTO:
	case NR_RECVFROM:
		call->buffer.base = SYSCALL_ARGUMENT_2(regs);
		call->buffer.length = SYSCALL_ARGUMENT_3(regs);
		break;
	case NR_READV:
	case NR_WRITEV:
		call->iov = SYSCALL_ARGUMENT_2(regs);
		call->iov_count = SYSCALL_ARGUMENT_3(regs);
		break;
	case NR_SENDMSG:
	case NR_RECVMSG:
		if (bpf_probe_read_user(&message, sizeof(message), (void *)SYSCALL_ARGUMENT_2(regs)))
			return 0;
		call->iov = message.iov;
		call->iov_count = message.iov_count;
		break;
	default:
		return 0;
	}
	call->fd = SYSCALL_ARGUMENT_1(regs);
	return 1;
}

#endif
