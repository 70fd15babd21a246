"""criscope: what the kubelet waits for, read off the sockets between it and its container runtime."""
