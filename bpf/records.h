/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records as they lie in the ring buffer. tracer/kernel/layouts.py names the same members, and compares them with the
 * object's BTF whenever it is loaded. Padding is explicit, all numbers are in the machine's own order.
 */
#ifndef CRISCOPE_RECORDS_H
#define CRISCOPE_RECORDS_H

#include <linux/types.h>

#define COMM_BYTES 16 /* TASK_COMM_LEN */
#define PATH_BYTES 112 /* sun_path has 108 and need not end in NUL; one more for the NUL, rounded up to words */
#define PLACE_NAME_BYTES 108 /* of a file or directory, with its NUL; what would fill it is taken for cut */
/* The socket's own and those of directories: plugins/DRIVER/csi.sock. Deeper in the kubelet's directory lie the volumes
 * of pods, and sockets there are the pods' own affair. */
#define PLACE_NAMES 3

enum record_kind {
	RECORD_OPENED = 1,
	RECORD_DATA = 2,
	RECORD_CLOSED = 3,
	RECORD_EXEC = 4,
	RECORD_EXIT = 5,
	RECORD_OOM = 6,
};

enum side { SIDE_CLIENT = 0, SIDE_SERVER = 1 };

enum direction { DIRECTION_SEND = 0, DIRECTION_RECEIVE = 1 };

struct record_head {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u32 pid; /* of the process (thread group), initial pid namespace */
	__u32 tid;
	char comm[COMM_BYTES]; /* of the thread group's leader */
	__u8 kind;
	__u8 side;
	__u8 direction;
	__u8 padding[5];
};

struct opened_record {
	struct record_head head;
	__u64 connection;
	__u64 directory; /* inode number of the one the socket's file lies in; 0: it has none */
	__u32 device; /* of that directory's filesystem, as the kernel writes numbers of devices */
	__u32 place; /* struct wanted; 0: wanted only by the text of its path */
	__u32 names; /* that follow: the socket's and of directories upwards to the place, each with its NUL; 0: the path as
			bound follows (an abstract one begins with NUL) */
	__u32 path_length; /* bytes that follow this structure */
};

struct data_record {
	struct record_head head;
	__u64 connection;
	__u64 offset; /* of the first byte: bytes this end moved before in this direction */
	__u32 length; /* bytes moved */
	__u32 captured; /* the first of them, which follow this structure */
	__s32 fd; /* -1: not one of the eight system calls */
	__s32 syscall; /* -1: a 32-bit one */
};

struct closed_record {
	struct record_head head;
	__u64 connection;
	__s32 error; /* errno; 0: end of file */
	__u32 padding;
};

struct exec_record {
	struct record_head head;
	__u64 forked; /* CLOCK_MONOTONIC, ns: when the process began */
	__u32 ppid;
	__u32 argv_bytes; /* strings, each with its NUL (the last may be cut), follow this structure */
	__u32 env_bytes; /* and after them those of the environment */
	__u32 padding;
};

struct exit_record {
	struct record_head head;
	__u32 ppid;
	__s32 status; /* as of wait(2) */
};

/* The head is the victim's, not that of the process that asked for memory. */
struct oom_record {
	struct record_head head;
	__s64 anonymous_pages; /* resident; -1: this kernel does not tell */
	__s64 file_pages;
	__s64 shared_pages;
	__u32 uid; /* -1: this kernel does not tell */
	__u32 cgroup_bytes; /* names, each with its NUL, from the victim's cgroup up to the root's, follow this structure */
};

/* What could not be told; kept per CPU and per program. */
struct counters {
	__u64 lost_records; /* the ring was full */
	__u64 lost_bytes; /* bytes that those records covered */
	__u64 trimmed_bytes; /* payload left out because the ring was filling up */
	__u64 unreadable_bytes; /* user memory that faulted */
	__u64 foreign_bytes; /* moved by a system call whose buffer is not known (io_uring, splice, 32-bit) */
	__u64 refused; /* a socket or a process that could not be followed: no memory, or the table was full */
};

#endif
