"""The live rig: a private containerd with real pods, driven the way a kubelet drives it.

`node` starts and removes the runtime, `driver` runs a kubelet-like client against it, in a process of its own, which
writes down every call it makes (`oracle`): what the tracer reports is compared with that.
"""
