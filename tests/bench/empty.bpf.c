// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Programs that do nothing where socket.bpf.c does its work: what remains is the price of the tracepoints. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tp_btf/sock_send_length")
int empty_send(void *arguments)
{
	return 0;
}

SEC("tp_btf/sock_recv_length")
int empty_receive(void *arguments)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
