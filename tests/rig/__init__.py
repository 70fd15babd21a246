"""The live rig: a private containerd with real pods, driven the way a kubelet drives it.

`node` starts and removes the runtime, `driver` runs a kubelet-like client against it, in a process of its own, which
writes down every call it makes (`oracle`): what the tracer reports is compared with that.

Trouble is made by switches, each a context manager that undoes itself: `freeze` (a process stands still), `Node.down`,
`cni` (slow and failing plugins), `throttle` (CPU), `disk` (full), `registry` (never answers), `proxy` (chosen calls).
`orders` tells a running driver what to do meanwhile; `troubles` names them all for the demonstration.
"""
