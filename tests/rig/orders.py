"""What a running driver can be told: pods to add and to remove, commands to run; JSON lines on its stdin."""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.rig import images, oracle, scenarios
from tests.rig.cri import CallError
from tests.rig.driver import DriverError, running
from tests.rig.kubelet import Kubelet
from tests.rig.pods import Container, Pod, Probe

NAMESPACE = "extra"
"""of the pods that are added by order"""

START_SECONDS = 60.0
"""For the pods of `steady` to run and to be probed; it takes about 5 s."""


class Orders:
    """The sending end, for a driver that runs the scenario `steady` or `demo`. Its methods do not wait.

    Raises DriverError when the driver has ended.
    """

    def __init__(self, process: subprocess.Popen[str], written: Path) -> None:
        self._process = process
        self.oracle = written
        """where the driver writes what it does"""

    @property
    def pid(self) -> int:
        """Of the driver, the "kubelet"."""
        return self._process.pid

    def add(
        self,
        name: str,
        *,
        image: str = images.BUSYBOX,
        command: list[str] | None = None,
        probe: list[str] | None = None,
        probe_timeout: int = 1,
        grace: int = 30,
    ) -> None:
        """Have a pod NAMESPACE/`name` run, with one container `main` and an exec probe each two seconds if wanted."""
        self._send(
            do="add",
            name=name,
            image=image,
            command=command,
            probe=probe,
            probe_timeout=probe_timeout,
            grace=grace,
        )

    def remove(self, name: str) -> None:
        """Have a pod terminated, whoever added it."""
        self._send(do="remove", name=name)

    def execute(self, pod: str, command: list[str]) -> None:
        """Have a command run in the pod's first container, by ExecSync without a timeout."""
        self._send(do="execute", name=pod, command=command)

    def await_call(
        self, method: str, *, pod: str | None = None, since: int = 0, seconds: float = 30.0
    ) -> dict[str, Any]:
        """The first call of this method that began after `since` (monotonic ns) and ended, as the oracle has it.

        Raises TimeoutError after so many seconds.
        """
        due = time.monotonic() + seconds
        while True:
            if self._process.poll() is not None:
                raise DriverError(self._last_words())
            for call in oracle.read(self.oracle, "call") if self.oracle.exists() else ():
                of = call["pod"] and call["pod"]["name"]
                if call["method"] == method and call["start"] > since and pod in (None, of):
                    return call
            if time.monotonic() > due:
                raise TimeoutError(f"no {method} of {pod or 'any pod'} ended within {seconds:.0f} s")
            time.sleep(0.05)

    def _send(self, **order: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(order)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DriverError(self._last_words()) from None

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()


@contextlib.contextmanager
def steady(socket: Path, written: Path) -> Iterator[Orders]:
    """A driver of the scenario `steady`, until the block ends; begins when each of its pods was probed.

    The pods are shop/cart, shop/checkout and shop/search (`scenarios.STEADY`), each with a container `web`. The
    driver's process is called "kubelet"; `frozen(orders.pid)` stops it.
    """
    with running(socket, written, "steady") as process:
        orders = Orders(process, written)
        for name in scenarios.STEADY:
            orders.await_call("ExecSync", pod=name, seconds=START_SECONDS)
        yield orders


def obey(kubelet: Kubelet) -> None:
    """The receiving end: carries out the orders on stdin until it is closed."""
    for line in _lines():
        order = json.loads(line)
        name = order["name"]
        if order["do"] == "add":
            kubelet.add(_pod(order))
        elif order["do"] == "remove":
            kubelet.remove(kubelet.pod(name))
        else:
            threading.Thread(target=_execute, args=(kubelet, name, order["command"]), daemon=True).start()


def _execute(kubelet: Kubelet, name: str, command: list[str]) -> None:
    target = scenarios.first_container(kubelet, kubelet.pod(name))
    with contextlib.suppress(CallError):  # its lists may fail: that is the trouble's doing
        scenarios.run_command(kubelet, target, command)


def _pod(order: dict[str, Any]) -> Pod:
    probe = Probe(order["probe"], period=2, timeout=order["probe_timeout"]) if order["probe"] else None
    container = Container("main", probe=probe, image=order["image"])
    if order["command"]:
        container = Container("main", probe=probe, image=order["image"], command=order["command"])
    return Pod(NAMESPACE, order["name"], [container], grace=order["grace"])


def _lines() -> Iterator[bytes]:
    """Not sys.stdin: a thread that waits in a buffered reader keeps Python from ending."""
    rest = b""
    while data := os.read(0, 65536):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
