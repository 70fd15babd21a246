"""Troubles by name, for `make demo TROUBLE=...`: what each does to the node, and how it comes back again and again."""

import contextlib
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.rig import disk, registry, shims
from tests.rig.freeze import frozen
from tests.rig.node import Node
from tests.rig.orders import Orders
from tests.rig.proxy import Proxy
from tests.rig.throttle import throttled

FIRST_SECONDS = 8.0
"""Before the first trouble: the pods of the scenario `demo` run by then."""

CALM_SECONDS = 15.0
"""Between two troubles: what piled up is worked off, and a finding has ended."""

DISK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Scene:
    """A node, the scenario `demo` on it, and a proxy between the two where one is needed."""

    node: Node
    orders: Orders
    proxy: Proxy | None


@dataclass(frozen=True, slots=True)
class Trouble:
    sentence: str
    seconds: float
    """how long it lasts"""
    switch: Callable[[Scene], contextlib.AbstractContextManager[object]]
    proxied: bool = False
    disk_bytes: int | None = None


@contextlib.contextmanager
def _pull(scene: Scene) -> Iterator[None]:
    with registry.silent() as image:
        scene.orders.add("pulling", image=image)
        try:
            yield
        finally:
            scene.orders.remove("pulling")


def _hang(scene: Scene) -> contextlib.AbstractContextManager[object]:
    assert scene.proxy is not None
    return scene.proxy.hang("ContainerStatus", pod="job-*")


TROUBLES = {
    "cni": Trouble(
        "CNI ADD takes 10 s for the pods batch/job-*: the plugin `bridge` sleeps",
        25.0,
        lambda scene: scene.node.plugins.slow(10, pods="job-*"),
    ),
    "cni-fail": Trouble(
        "CNI ADD fails for the pods batch/job-*: the plugin `bridge` says that no address is left",
        25.0,
        lambda scene: scene.node.plugins.failing(pods="job-*"),
    ),
    "cpu": Trouble(
        "containerd gets 1 % of one core, by a quota on its control group",
        20.0,
        lambda scene: throttled(scene.node, 0.01),
    ),
    "disk": Trouble(
        "the disk of containerd's root is full",
        25.0,
        lambda scene: disk.full(scene.node),
        disk_bytes=DISK_BYTES,
    ),
    "hang": Trouble(
        "ContainerStatus of the pods batch/job-* hangs: a proxy before the runtime holds it",
        25.0,
        _hang,
        proxied=True,
    ),
    "kubelet": Trouble(
        "the driver, which plays the kubelet, is stopped (SIGSTOP)",
        15.0,
        lambda scene: frozen(scene.orders.pid),
    ),
    "pull": Trouble(
        "the registry of the pod extra/pulling never answers",
        25.0,
        _pull,
    ),
    "restart": Trouble(
        "containerd is ended (SIGTERM) and started again after 3 s",
        3.0,
        lambda scene: scene.node.down(),
    ),
    "runtime": Trouble(
        "containerd is stopped (SIGSTOP)",
        15.0,
        lambda scene: frozen(scene.node.pid),
    ),
    "shim": Trouble(
        "the shim of the pod shop/cart is stopped (SIGSTOP)",
        20.0,
        lambda scene: frozen(shims.pid(scene.node, "cart")),
    ),
}


class Recurring:
    """A trouble that comes and goes, in a thread, until the block ends; then it is undone. `say` is told each step."""

    def __init__(self, trouble: Trouble, scene: Scene, say: Callable[[str], None]) -> None:
        self.failure: Exception | None = None
        """what ended it before its time"""
        self._trouble = trouble
        self._scene = scene
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            wait = FIRST_SECONDS
            while not self._over.wait(wait):
                with self._trouble.switch(self._scene):
                    self._tell(f"trouble for {self._trouble.seconds:.0f} s: {self._trouble.sentence}")
                    self._over.wait(self._trouble.seconds)
                self._tell("the trouble is over")
                wait = CALM_SECONDS
        except Exception as error:  # the main thread ends the demonstration and says why
            self.failure = error

    def _tell(self, text: str) -> None:
        self._say(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {text}")
