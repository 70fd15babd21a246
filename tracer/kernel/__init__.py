"""The kernel side: loads the BPF programs, and decodes what they put into the ring buffer. The only user of ctypes."""
