"""A private containerd: own files, socket, network and cgroups; nothing that exists on the machine is touched."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import grpc
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.rig import cni, footprint, images, linux

START_SECONDS = 30.0
"""containerd serves after about 0.3 s; a loaded machine gets a hundred times that."""

LOG_TAIL_LINES = 12

# containerd looks for its shim, and the shim for runc, in PATH.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

_CONFIG = """\
version = 2
root = "{base}/root"
state = "{runtime}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{base}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Lowering a score needs CAP_SYS_RESOURCE, which build machines often withhold.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{base}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{runtime}/runc"
"""


class NodeError(Exception):
    """The node cannot be started; the text says why, and what containerd said last."""


class Node:
    """`with Node() as node:` serves the CRI at `node.socket` until the block ends, however it ends.

    SIGTERM ends the block like Ctrl-C (SystemExit 143) when the node is started from the main thread. What an earlier
    node left because it was killed is removed first. With `disk_bytes` containerd's root is a file system of its own
    and of that size, which `disk.full` fills; the images need 10 MB.
    """

    def __init__(self, disk_bytes: int | None = None) -> None:
        self._disk_bytes = disk_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._former_handler: signal._HANDLER | None = None
        self.footprint: footprint.Footprint

    @property
    def socket(self) -> Path:
        return self.footprint.runtime / "containerd.sock"

    @property
    def pid(self) -> int:
        """Of containerd."""
        assert self._process is not None
        return self._process.pid

    @property
    def plugins(self) -> cni.Plugins:
        """Its CNI plugins, with switches."""
        return cni.Plugins(self.footprint.plugins)

    @property
    def root(self) -> Path:
        """Images, snapshots and containerd's database."""
        return self.footprint.base / "root"

    @property
    def log(self) -> Path:
        return self.footprint.base / "containerd.log"

    def __enter__(self) -> Self:
        if reason := why_not():
            raise NodeError(reason)
        for left in footprint.abandoned():
            left.remove()
        self._claim()
        try:
            if threading.current_thread() is threading.main_thread():
                self._former_handler = signal.signal(signal.SIGTERM, _terminate)
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End containerd by a signal and start it again at the same paths; done when it serves. Pods live on."""
        with self.down(number):
            pass

    @contextlib.contextmanager
    def down(self, number: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """Within the block there is no containerd: it got this signal. Its shims and pods live on."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()
        try:
            yield
        finally:
            self._serve()

    def stop(self) -> None:
        """Remove everything; a second call finds nothing to do."""
        with _uninterrupted():
            # Killed, not asked: containerd leaves shims and pods running on SIGTERM, so asking saves nothing.
            self.footprint.remove()
            if self._process is not None:
                self._process.wait()
        if self._former_handler is not None:
            signal.signal(signal.SIGTERM, self._former_handler)
            self._former_handler = None

    def _claim(self) -> None:
        mine = footprint.owner(os.getpid())
        assert mine is not None
        name = secrets.token_hex(2)
        base = Path(tempfile.mkdtemp(prefix=footprint.BASE_PREFIX, dir=footprint.BASES))
        self.footprint = footprint.Footprint(
            owner=mine,
            base=base,
            runtime=Path(f"/run/criscope-{name}"),
            bridge=f"criscope-{name}",
            cgroup=f"/criscope-{name}",
            shared=[path for path in footprint.SHARED if not path.exists()],
        )
        self.footprint.save()
        self.footprint.runtime.mkdir(mode=0o711)

    def _start(self) -> None:
        base = self.footprint.base
        self.root.mkdir()
        if self._disk_bytes is not None:
            linux.mount_tmpfs(str(self.root), self._disk_bytes)
        (base / "config.toml").write_text(
            _CONFIG.format(
                base=base,
                runtime=self.footprint.runtime,
                socket=self.socket,
                pause=images.PAUSE,
                plugins=self.footprint.plugins,
                snapshotter=_snapshotter(self.root),
            ),
        )
        self.plugins.install()
        (base / "cni").mkdir()
        (base / "cni" / "10-criscope.conflist").write_text(json.dumps(self._network()))
        self._serve()
        archive = base / "images.tar"
        images.write_archive(archive)
        self._import(archive)
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:
            self._wait(lambda: _has_images(channel), "did not show the imported images")
        archive.unlink()

    def _serve(self) -> None:
        """Start containerd and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["containerd", "--config", str(self.footprint.base / "config.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                start_new_session=True,  # a Ctrl-C in the terminal must reach it through `stop` only
            )
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:
            self._wait(lambda: _is_ready(channel), "did not become ready")

    def _network(self) -> dict[str, object]:
        # No gateway and no masquerading: either would change routes, sysctls or firewall rules of the machine.
        bridge = {
            "type": "bridge",
            "bridge": self.footprint.bridge,
            "isGateway": False,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.footprint.base / "ipam"),
                "ranges": [[{"subnet": "10.88.0.0/16"}]],
            },
        }
        return {"cniVersion": "0.4.0", "name": self.footprint.bridge, "plugins": [bridge]}

    def _import(self, archive: Path) -> None:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", str(archive)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode:
            raise NodeError(self._with_log(f"importing the images failed: {done.stderr.strip()}"))

    def _wait(self, condition: Callable[[], bool], failure: str) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if (code := self._process.poll()) is not None:
                raise NodeError(self._with_log(f"containerd ended with status {code}"))
            if time.monotonic() > deadline:
                raise NodeError(self._with_log(f"containerd {failure} within {START_SECONDS:.0f} s"))
            time.sleep(0.02)

    def _with_log(self, message: str) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"{message}; its last words:", *tail])


def why_not() -> str | None:
    """The reason why no node can run here, as one line that says what to do; None when one can."""
    if os.geteuid() != 0:
        return "real pods need root: run it as root"
    path = ENVIRONMENT["PATH"]
    needed = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip")
    missing = [name for name in needed if shutil.which(name, path=path) is None]
    missing += [str(plugin) for plugin in cni.missing()]
    missing += [] if images.busybox() else ["busybox"]
    return f"{', '.join(missing)} missing: run `make setup` as root" if missing else None


def _is_ready(channel: grpc.Channel) -> bool:
    try:
        answer = api_pb2_grpc.RuntimeServiceStub(channel).Status(api_pb2.StatusRequest(), timeout=1)
    except grpc.RpcError:
        return False  # not listening yet, or "server is not initialized yet"
    return all(condition.status for condition in answer.status.conditions)


def _has_images(channel: grpc.Channel) -> bool:
    stub = api_pb2_grpc.ImageServiceStub(channel)
    specs = [api_pb2.ImageSpec(image=name) for name in (images.PAUSE, images.BUSYBOX)]
    return all(stub.ImageStatus(api_pb2.ImageStatusRequest(image=spec), timeout=1).HasField("image") for spec in specs)


def _snapshotter(root: Path) -> str:
    """overlayfs where it mounts (not on an overlay, as in many containers); else native, which copies every image."""
    probe = root / "overlay-probe"
    parts = [probe / part for part in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir(parents=True)
    lower, upper, work, merged = map(str, parts)
    try:
        linux.mount_overlay(merged, f"lowerdir={lower},upperdir={upper},workdir={work}")
    except OSError:
        return "native"
    linux.unmount(merged)
    return "overlayfs"


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block is done, then let them act."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
