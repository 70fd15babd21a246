"""A CRI proxy in front of the real runtime that makes chosen calls slow, hang, fail or break, while everything runs.

    with Node() as node, Proxy(node.socket) as proxy:              # clients connect to proxy.socket
        with orders.steady(proxy.socket, oracle):
            with proxy.hang("ContainerStatus", pod="cart") as trouble:
                trouble.await_strike()
                ...

A tracer sees two connections then: the client's to `proxy.socket`, and the proxy's (a process named "cri-proxy") to the
runtime's socket. The proxy is a process of its own, so its name, its children (none) and its pace are its own.
"""

import asyncio
import contextlib
import fnmatch
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from cri_api.v1 import api_pb2

from tests.rig import linux
from tests.rig.driver import REPOSITORY
from tests.rig.relay import Call, Relay

NAME = "cri-proxy"

STRIKE_SECONDS = 30.0
"""A kubelet makes every call of its rhythm at least once in this time, but garbage collection."""

_ID = re.compile(rb"[0-9a-f]{64}")
_PREFIX = 5  # gRPC's flag and length before each message


class ProxyError(Exception):
    """The proxy does not run; the text is what it said."""


@dataclass(slots=True)
class Rule:
    """Which calls, and what becomes of them. None: whatever it is."""

    action: str
    """delay, hang, fail, reset, sever"""
    methods: tuple[str, ...]
    pod: str | None = None
    container: str | None = None
    nth: int | None = None
    """only the nth call that matches, counted from 1"""
    seconds: float = 0.0
    status: str = "OK"
    message: str = ""


class Trouble:
    """A rule in force."""

    def __init__(self, proxy: "Proxy", number: int) -> None:
        self._proxy = proxy
        self._number = number

    def strikes(self) -> int:
        """How many calls it has struck."""
        found: int = self._proxy.command(do="count", number=self._number)["strikes"]
        return found

    def await_strike(self, seconds: float = STRIKE_SECONDS) -> None:
        """Wait until it has struck a call. Raises TimeoutError."""
        due = time.monotonic() + seconds
        while not self.strikes():
            if time.monotonic() > due:
                raise TimeoutError(f"no call to strike within {seconds:.0f} s")
            time.sleep(0.02)


class Proxy:
    """Listens at `socket` beside the runtime's, until the block ends.

    Each switch takes the methods it is for (none: all) and, by keyword, `pod` and `container` (names or patterns as in
    a shell; known of what was created through the proxy) and `nth` (only the nth call that matches, counted from the
    block's start). What it holds goes on to the runtime when its block ends. Rules of several blocks apply one after
    the other.
    """

    def __init__(self, runtime: Path) -> None:
        self.socket = runtime.with_name("proxy.sock")
        self._runtime = runtime
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.proxy", str(self.socket), str(self._runtime)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reply()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        with self._process as process:
            process.kill()
        self.socket.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def delay(self, seconds: float, *methods: str, **which: Any) -> contextlib.AbstractContextManager[Trouble]:
        """Calls go on to the runtime so many seconds late."""
        return self._rule(Rule("delay", methods, seconds=seconds, **which))

    def hang(self, *methods: str, **which: Any) -> contextlib.AbstractContextManager[Trouble]:
        """Calls do not go on before the block ends."""
        return self._rule(Rule("hang", methods, **which))

    def fail(
        self, status: str, message: str, *methods: str, **which: Any
    ) -> contextlib.AbstractContextManager[Trouble]:
        """Calls are answered with this gRPC status (by name) and message, and the runtime does not get them."""
        return self._rule(Rule("fail", methods, status=status, message=message, **which))

    def reset(self, *methods: str, **which: Any) -> contextlib.AbstractContextManager[Trouble]:
        """Calls end by RST_STREAM, without a status; the runtime does not get them."""
        return self._rule(Rule("reset", methods, **which))

    def sever(self, *methods: str, **which: Any) -> contextlib.AbstractContextManager[Trouble]:
        """A call ends its client's connection and so all that are on it, as if the runtime had died."""
        return self._rule(Rule("sever", methods, **which))

    def command(self, **what: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(f"{json.dumps(what)}\n")
            self._process.stdin.flush()
            return self._reply()

    @contextlib.contextmanager
    def _rule(self, rule: Rule) -> Iterator[Trouble]:
        number = next(self._numbers)
        self.command(do="add", number=number, rule=asdict(rule))
        try:
            yield Trouble(self, number)
        finally:
            self.command(do="lift", number=number)

    def _reply(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ProxyError("the CRI proxy ended; what it said stands on standard error")
        return json.loads(line)


@dataclass(slots=True)
class _Force:
    """A rule in the proxy's process."""

    rule: Rule
    seen: int = 0
    strikes: int = 0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


class _Handler:
    """Decides about each call; knows pods and containers by the ids that the runtime gave them."""

    def __init__(self) -> None:
        self.forces: dict[int, _Force] = {}
        self._names: dict[bytes, tuple[str | None, str | None]] = {}

    def handle(self, relay: Relay, call: Call) -> Awaitable[None] | None:
        chosen = [force for force in self.forces.values() if self._chooses(force, call)]
        if chosen:
            return self._strike(relay, call, chosen)
        relay.pass_on(call)
        return None

    def answered(self, call: Call) -> None:
        """Learn what was created."""
        if call.path.endswith(("/RunPodSandbox", "/CreateContainer")) and (found := _ID.search(call.answer)):
            self._names[found[0]] = self._subject(call)

    async def _strike(self, relay: Relay, call: Call, chosen: list[_Force]) -> None:
        for force in chosen:
            force.strikes += 1
            rule = force.rule
            if rule.action in ("delay", "hang"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(force.lifted.wait(), rule.seconds if rule.action == "delay" else None)
            elif rule.action == "fail":
                relay.answer(call, grpc.StatusCode[rule.status].value[0], rule.message)
                return
            elif rule.action == "reset":
                relay.reset(call)
                return
            else:
                relay.sever()
                return
        relay.pass_on(call)

    def _chooses(self, force: _Force, call: Call) -> bool:
        rule = force.rule
        pod, container = self._subject(call)
        fits = (
            (not rule.methods or call.path.rpartition("/")[2] in rule.methods)
            and _matches(pod, rule.pod)
            and _matches(container, rule.container)
        )
        force.seen += fits
        return fits and rule.nth in (None, force.seen)

    def _subject(self, call: Call) -> tuple[str | None, str | None]:
        """Names of the pod and the container that the request is about."""
        message = bytes(call.request[_PREFIX:])
        method = call.path.rpartition("/")[2]
        if method == "RunPodSandbox":
            return api_pb2.RunPodSandboxRequest.FromString(message).config.metadata.name, None
        if method == "PullImage":
            return api_pb2.PullImageRequest.FromString(message).sandbox_config.metadata.name, None
        if method == "CreateContainer":
            request = api_pb2.CreateContainerRequest.FromString(message)
            return request.sandbox_config.metadata.name, request.config.metadata.name
        found = _ID.search(message)
        return self._names.get(found[0], (None, None)) if found else (None, None)


def _matches(name: str | None, pattern: str | None) -> bool:
    return pattern is None or (name is not None and fnmatch.fnmatchcase(name, pattern))


class _Commands:
    """Rules come and go by JSON lines on stdin; each is answered by a line. Ends with the end of stdin."""

    def __init__(self, forces: dict[int, _Force]) -> None:
        self._forces = forces
        self._rest = b""
        self.over = asyncio.Event()

    def read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self.over.set()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            print(json.dumps(self._obey(json.loads(line))), flush=True)

    def _obey(self, command: dict[str, Any]) -> dict[str, int]:
        number = command["number"]
        if command["do"] == "add":
            rule = command["rule"]
            self._forces[number] = _Force(Rule(**rule | {"methods": tuple(rule["methods"])}))
        force = self._forces[number]
        if command["do"] == "lift":
            del self._forces[number]
            force.lifted.set()
        return {"strikes": force.strikes}


async def _serve(listen: str, runtime: Path) -> None:
    loop = asyncio.get_running_loop()
    handler = _Handler()
    commands = _Commands(handler.forces)
    await loop.create_unix_server(lambda: Relay(runtime, handler.handle, handler.answered).client, listen)
    loop.add_reader(0, commands.read)
    print(json.dumps({"ready": True}), flush=True)
    await commands.over.wait()


if __name__ == "__main__":
    linux.name_process(NAME)
    linux.end_with_parent()
    asyncio.run(_serve(sys.argv[1], Path(sys.argv[2])))
