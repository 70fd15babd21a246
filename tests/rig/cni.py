"""The node's own directory of CNI plugins: links to the machine's, until one is told to be slow or to fail."""

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rig import footprint

PLUGINS = Path("/usr/lib/cni")

_NEEDED = ("bridge", "host-local", "loopback")

# comm is the script's name, as it is of a program. containerd runs it with what libcni sets: the pod's name is in
# CNI_ARGS (cri's `cniNamespaceOpts`).
_WRAPPER = """\
#!/bin/sh
pod=${{CNI_ARGS#*K8S_POD_NAME=}}
case "$CNI_COMMAND:${{pod%%;*}}" in
{pattern})
  {action}
  ;;
esac
exec {plugin} "$@"
"""


@dataclass(frozen=True, slots=True)
class Plugins:
    """The directory that containerd runs plugins from. Each switch changes the plugin that it names, here `bridge`."""

    directory: Path

    def install(self) -> None:
        self.directory.mkdir()
        for name in _NEEDED:
            self._link(name)

    @contextlib.contextmanager
    def slow(self, seconds: float, *, pods: str = "*", command: str = "ADD", plugin: str = "bridge") -> Iterator[None]:
        """The plugin sleeps before it does its work, for pods whose name matches (`*`, `?` and `[]` as in a shell).

        `command` is CNI's: ADD as a sandbox starts, DEL as it stops. Whoever sleeps when the block ends is woken.
        """
        with self._changed(plugin, f"{command}:{pods}", f"sleep {seconds}"):
            try:
                yield
            finally:
                self._link(plugin)  # first, so that nobody falls asleep any more
                for pid in self._sleepers(plugin):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

    @contextlib.contextmanager
    def failing(
        self,
        message: str = "no address is left",
        *,
        code: int = 11,
        pods: str = "*",
        command: str = "ADD",
        plugin: str = "bridge",
    ) -> Iterator[None]:
        """The plugin does nothing but say why not: exit code 1 and an error result with this code and message.

        Code 11 is the CNI specification's "try again later"; those from 100 are a plugin's own.
        """
        error = json.dumps({"cniVersion": "0.4.0", "code": code, "msg": message})
        with self._changed(plugin, f"{command}:{pods}", f"echo {shlex.quote(error)}; exit 1"):
            yield

    @contextlib.contextmanager
    def _changed(self, plugin: str, pattern: str, action: str) -> Iterator[None]:
        path = self.directory / plugin
        assert path.is_symlink(), f"{plugin} is changed already"
        script = _WRAPPER.format(pattern=pattern, action=action, plugin=PLUGINS / plugin)
        fresh = path.with_suffix(".new")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.rename(path)  # at once: it may be started at any moment
        try:
            yield
        finally:
            self._link(plugin)

    def _link(self, plugin: str) -> None:
        fresh = self.directory / f"{plugin}.new"
        fresh.symlink_to(PLUGINS / plugin)
        fresh.rename(self.directory / plugin)

    def _sleepers(self, plugin: str) -> list[int]:
        wrapper = ["/bin/sh", str(self.directory / plugin)]
        shells = {pid for pid, argv in footprint.processes() if argv == wrapper}
        return [pid for pid, argv in footprint.processes() if argv[0] == "sleep" and footprint.parent(pid) in shells]


def missing() -> list[Path]:
    """The plugins a node needs and this machine lacks."""
    return [path for name in _NEEDED if not (path := PLUGINS / name).exists()]
