"""Which step a program is that the runtime or one of its descendants executed."""

import re
from dataclasses import dataclass
from itertools import pairwise

from tracer.records import Exec
from tracer.runtime.step import Step, StepKind

RUNTIMES = frozenset({"runc", "crun", "youki", "runsc"})
"""OCI runtimes that take runc's command line."""

_VERBS = frozenset({
    "create", "start", "exec", "kill", "delete", "update", "state", "ps", "pause", "resume", "checkpoint", "restore",
    "events", "run",
})  # fmt: skip

_WITH_VALUE = frozenset({"--root", "--log", "--log-format", "--rootless", "--criu", "--log-level"})
"""Global options of OCI runtimes that take the next argument, unless it is given with "="."""

_HELPERS = frozenset({"unpigz", "conmonrs"})
"""Programs of a runtime by name, whoever of its descendants runs them."""

_COMM = 15
"""Characters of a process's name (TASK_COMM_LEN without the NUL)."""

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Program:
    """`id`: a container's or a sandbox's; `session`: it runs a command in a container that runs already."""

    kind: StepKind
    name: str
    id: str | None = None
    exec_id: str | None = None
    command: str | None = None
    pod_uid: str | None = None
    session: bool = False
    netns: str | None = None  # file name of the network namespace it makes or is given


def program(record: Exec, parent: Step | None, *, of_runtime: bool, folder: str | None = None) -> Program | None:
    """None when it is no step: a shim's daemon, `runc init`, a container's own program.

    `parent` is the step whose process started it, and lies in `folder`; `of_runtime`: the runtime itself started it.
    """
    name = _name(record)
    if name in RUNTIMES:
        return _oci(record.argv, name)
    if name.startswith("containerd-shim"):
        return _shim(record.argv, name)
    if name == "conmon":
        return Program("exec", name, id=_after(record.argv, "-c"), session="-e" in record.argv)
    if parent is not None and parent.kind == "cni":
        # Its children have its environment, so only where they lie tells a plugin from a tool.
        plugin = _of_cni(record) or (folder is not None and folder_of(record) == folder)
        return Program("cni" if plugin else "exec", name, id=parent.subject, command=parent.command)
    if "CNI_COMMAND" in record.env or (of_runtime and _of_cni(record)):
        return _cni(record, name)
    if name == "pinns":
        return Program("exec", name, netns=_after(record.argv, "-f"))
    if of_runtime or name in _HELPERS:
        return Program("exec", name)
    return None


def _name(record: Exec) -> str:
    """A script's interpreter is `argv[0]`; the kernel names the process after the script (`begin_new_exec`)."""
    name = record.argv[0].rpartition("/")[2] if record.argv else ""
    comm = record.comm
    return name if name[:_COMM] == comm or comm in ("", "exe") else comm


def _oci(argv: list[str], name: str) -> Program | None:
    at, verb = 1, ""
    while at < len(argv):
        word = argv[at]
        at += 1
        if word in _VERBS:
            verb = word
            break
        if word == "init":
            return None
        if word in _WITH_VALUE:
            at += 1
    if not verb:
        return Program("exec", name)
    rest = argv[at:]
    exec_id = None
    if verb == "exec":
        file = _after(rest, "--pid-file")
        stem = file.rpartition("/")[2].removesuffix(".pid") if file else ""
        exec_id = stem if _ID.fullmatch(stem) else None
    found = next((word for word in rest if _ID.fullmatch(word)), None)
    return Program("runc", verb, id=found, exec_id=exec_id, session=verb == "exec")


def _shim(argv: list[str], name: str) -> Program | None:
    action = next((word for word in argv if word in ("start", "delete")), None)
    return None if action is None else Program("exec", f"{name} {action}", id=_after(argv, "-id"))


def _cni(record: Exec, name: str) -> Program:
    env = record.env
    args = dict(pair.split("=", 1) for pair in env.get("CNI_ARGS", "").split(";") if "=" in pair)
    return Program(
        "cni", name, id=env.get("CNI_CONTAINERID") or None, command=env.get("CNI_COMMAND") or None,
        pod_uid=args.get("K8S_POD_UID") or None, netns=env.get("CNI_NETNS", "").rpartition("/")[2] or None,
    )  # fmt: skip


def folder_of(record: Exec) -> str | None:
    """Where the program, or the script, lies."""
    name = _name(record)
    for word in record.argv[:2]:
        folder, _, base = word.rpartition("/")
        if folder and base == name:
            return folder
    return None


def _of_cni(record: Exec) -> bool:
    """Whether it lies where plugins usually do: /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni."""
    return "/cni/" in f"{folder_of(record)}/"


def _after(argv: list[str], option: str) -> str | None:
    for word, following in pairwise(argv):
        if word == option:
            return following
    return None
