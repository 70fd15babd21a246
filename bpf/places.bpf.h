/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where wanted sockets lie: by directory and name, however the server spelled the path it bound. */
#ifndef CRISCOPE_PLACES_BPF_H
#define CRISCOPE_PLACES_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel_types.h"
#include "records.h"

#define WANTED_PLACES 2048 /* a pattern becomes two at most, and there are at most WANTED_PATHS of those */

struct wanted {
	__u32 runtime; /* who serves such a path is a runtime or a shim: follow its descendants */
	__u32 place; /* the pattern's number, from 1; 0 in the table of paths */
};

/* A name, or its beginning: user space puts the NUL into the key of a whole name. */
struct place_key {
	__u32 bits;
	__u32 device;
	__u64 directory;
	__u32 above; /* 0: the name is the socket's own; 1: that of a directory above it */
	char name[PLACE_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, WANTED_PLACES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct place_key);
	__type(value, struct wanted);
} wanted_places SEC(".maps");

/* Of the table above. Directories come and go, so user space writes it anew, and then counts this up: sockets that were
 * turned away are looked at once more. */
__u32 generation SEC(".data.places");

/* Returns its bytes with the NUL; 0 when it cannot be read or is too long. */
static __always_inline __u32 read_name(char *name, struct dentry *dentry)
{
	long bytes = bpf_probe_read_kernel_str(name, PLACE_NAME_BYTES, dentry->d_name.name);

	return bytes > 0 && bytes < PLACE_NAME_BYTES ? bytes : 0;
}

/* `names`: how many lead from the wanted directory to the socket. */
static __always_inline struct wanted *wanted_at(struct dentry *dentry, __u8 *names)
{
	struct place_key key = { .bits = 8 * (sizeof(key) - sizeof(key.bits)) };
	struct dentry *directory;
	struct wanted *wanted;
	__u32 number;

	for (number = 0; number < PLACE_NAMES; number++) {
		directory = dentry->d_parent;
		if (directory == dentry || !read_name(key.name, dentry))
			return 0;
		key.directory = directory->d_inode->i_ino;
		key.device = directory->d_inode->i_sb->s_dev;
		key.above = number > 0;
		wanted = bpf_map_lookup_elem(&wanted_places, &key);
		if (wanted) {
			*names = number + 1;
			return wanted;
		}
		dentry = directory;
	}
	return 0;
}

/* Writes the names one after the other; returns their bytes. */
static __always_inline __u32 read_names(char *to, struct dentry *dentry, __u8 names)
{
	__u32 filled = 0, number;

	for (number = 0; number < PLACE_NAMES && number < names; number++) {
		if (filled > (PLACE_NAMES - 1) * PLACE_NAME_BYTES)
			break;
		filled += read_name(to + filled, dentry);
		dentry = dentry->d_parent;
	}
	return filled;
}

#endif
