"""Which arguments of a program may be kept: those of the runtime's own tools."""

import re

from tracer.records import Exec

TOOLS = frozenset({
    "containerd", "containerd-shim", "containerd-shim-runc-v1", "containerd-shim-runc-v2", "crio", "conmon", "conmonrs",
    "runc", "crun", "youki", "runsc", "pinns", "iptables", "ip6tables", "unpigz",
})  # fmt: skip
"""Programs of a runtime, whose arguments are ids, paths and verbs. A container's own programs descend from the shim as
well; their arguments are theirs."""

CNI = frozenset({"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"})
"""Variables of the CNI specification (section 2, "Parameters")."""

_EXEC_OPTIONS = frozenset({"--process", "-p", "--pid-file", "--console-socket", "--detach", "-d", "--tty", "-t"})
_ID = re.compile(r"[0-9a-f]{64}")
_PLUGIN = re.compile(r"(?:/[A-Za-z0-9._-]{1,64}){0,8}/cni/(?:bin/)?[A-Za-z0-9._-]{1,64}")


def clean(record: Exec) -> Exec:
    """The record with the arguments of programs that are not the runtime's overwritten, but for the program's name."""
    argv = record.argv
    env = {name: value for name, value in record.env.items() if name in CNI}
    if argv:
        name = argv[0].rpartition("/")[2]
        if name in TOOLS:
            argv = _tool(argv)
        else:
            # CNI plugins take everything from their environment and standard input; some are scripts.
            plugin = "CNI_COMMAND" in env
            first = argv[0] if plugin or _of_plugins(argv[0]) else name
            argv = [
                first,
                *(word if i == 0 and _of_plugins(word) else _covered(word) for i, word in enumerate(argv[1:])),
            ]
    return Exec(record.time, record.pid, record.ppid, record.comm, argv, env, record.forked)


def _of_plugins(word: str) -> bool:
    """Whether it is the path of a file where CNI plugins usually lie, and nothing else."""
    return bool(_PLUGIN.fullmatch(word))


def _tool(argv: list[str]) -> list[str]:
    """`runc exec` may carry a command line when something else than a runtime calls it."""
    if "exec" not in argv:
        return argv
    at = argv.index("exec") + 1
    rest = argv[at:]
    kept = [
        word if word in _EXEC_OPTIONS or _ID.fullmatch(word) or (i and word[:1] == "/" and rest[i - 1] in _EXEC_OPTIONS)
        else _covered(word)
        for i, word in enumerate(rest)
    ]  # fmt: skip
    return argv[:at] + kept


def _covered(word: str) -> str:
    return "x" * len(word)
