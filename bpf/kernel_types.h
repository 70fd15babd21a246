/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel structures the programs read, with only the members they read. The offsets here mean nothing: CO-RE
 * (preserve_access_index) takes the running kernel's own from its BTF when the object is loaded, by struct and member
 * name. So no vmlinux.h of one particular kernel is needed.
 */
#ifndef CRISCOPE_KERNEL_TYPES_H
#define CRISCOPE_KERNEL_TYPES_H

#include <linux/types.h>

typedef _Bool bool;

#define AF_UNIX 1
#define SOCK_STREAM 1
#define RCV_SHUTDOWN 1 /* include/net/sock.h: the peer will send nothing more */
#define MSG_PEEK 2
#define EPIPE 32
#define ECONNRESET 104
#define UIO_MAXIOV 1024 /* include/uapi/linux/uio.h: the kernel refuses more segments in one call */

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct sk_buff_head {
	__u32 qlen;
};

struct sock_common {
	unsigned short skc_family;
};

struct file;

struct socket {
	struct file *file;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u8 sk_shutdown;
	__u16 sk_type;
	struct socket *sk_socket;
};

struct super_block {
	__u32 s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent; /* of a filesystem's root: itself */
	struct qstr d_name; /* changes with the file's name */
	struct inode *d_inode;
};

struct path {
	struct dentry *dentry;
};

struct sockaddr_un {
	__u16 sun_family;
	char sun_path[108];
};

struct unix_address {
	int len; /* of the whole address: the family and what is used of the path */
	struct sockaddr_un name[];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr; /* the listener's own, shared with every socket it accepted; none on a client */
	struct path path; /* of the file that bind made, like addr shared by all accepted; none of an abstract name */
	struct sock *peer; /* holds a reference, so it stays valid as long as this end is open */
};

struct mnt_namespace;

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct percpu_counter {
	__s64 count;
};

struct mm_struct {
	struct percpu_counter rss_stat[4]; /* Linux 6.2 */
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long env_start;
	unsigned long env_end;
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct thread_info {
	__u32 status;
};

enum cgroup_subsys_id { memory_cgrp_id }; /* the number is the kernel's, see above */

struct kernfs_node {
	struct kernfs_node *__parent; /* Linux 6.15 */
	const char *name;
};

struct kernfs_node___before_6_15 {
	struct kernfs_node *parent;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[16]; /* as many as the kernel has */
};

struct trace_event_raw_mark_victim {
	unsigned int uid; /* Linux 6.8, and newer releases of older ones */
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state; /* Linux 5.14 */
	struct mm_struct *mm;
	int exit_code;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	unsigned long long start_time; /* CLOCK_MONOTONIC, ns */
	char comm[16];
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	struct css_set *cgroups;
};

struct linux_binprm;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task; /* none at the end */
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10;
	unsigned long r8;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "only x86-64 and arm64: say -D__TARGET_ARCH_x86 or -D__TARGET_ARCH_arm64"
#endif

#pragma clang attribute pop
#pragma clang diagnostic pop

#endif
