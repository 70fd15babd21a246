"""The driver's command line: `python -m tests.rig.driver --socket S --oracle FILE --scenario NAME`.

Runs as a process whose main thread is called "kubelet", because that is how a tracer tells a kubelet from others.
"""

import argparse
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.rig import linux

SWITCH_SECONDS = 0.0001
"""Python's usual 5 ms is how long a thread whose answer arrived may wait for another that computes."""

END_SECONDS = 10.0
"""A driver that is told to end may be in a call; nothing is lost when it is killed then."""

REPOSITORY = Path(__file__).resolve().parents[2]


class DriverError(Exception):
    """A scenario did not come to its end; the text is what the driver said."""


@contextlib.contextmanager
def running(socket: Path, oracle: Path, scenario: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A scenario in a process of its own, which ends with the block. `more`: further options of the command line."""
    command = [sys.executable, "-m", "tests.rig.driver", "--socket", str(socket), "--oracle", str(oracle)]
    with subprocess.Popen(
        [*command, "--scenario", scenario, *more],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,  # takes orders (`orders`)
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C in the terminal reaches it through the end of the block
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def run(socket: Path, oracle: Path, scenario: str, *more: str, timeout: float = 90.0) -> None:
    """Run a scenario to its end. Raises DriverError when it fails, TimeoutExpired after `timeout` seconds."""
    with running(socket, oracle, scenario, *more) as process:
        _, errors = process.communicate(timeout=timeout)
    if process.returncode:
        raise DriverError(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description="Drive a container runtime the way a kubelet does.")
    parser.add_argument("--socket", type=Path, required=True, help="the runtime's CRI socket")
    parser.add_argument("--oracle", type=Path, required=True, help="file to write every call to, as JSON lines")
    parser.add_argument("--scenario", required=True, choices=["demo", "oracle", "other", "pod", "secrets", "steady"])
    parser.add_argument("--seconds", type=float, help="end the scenario after so long; default: when it is done")
    parser.add_argument("--canary", default="canary", help="what `secrets` plants, with the place appended")
    arguments = parser.parse_args()
    if arguments.scenario != "other":
        linux.name_process("kubelet")
    linux.end_with_parent()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # Its stamps are the truth that a tracer is measured by, so neither busy cores (real-time priority), nor another
    # thread of its own (short switches), nor a pause to look for garbage may come between the socket and the clock.
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()
    # Only now: threads start, and the process must have its name before its first connection.
    from tests.rig import channel, cri, kubelet, oracle, orders, scenarios

    threading.excepthook = _end_loudly
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if arguments.seconds:
        timer = threading.Timer(arguments.seconds, stopping.set)
        timer.daemon = True
        timer.start()
    log = oracle.Oracle(arguments.oracle)
    if arguments.scenario == "other":
        scenarios.other(cri.Client(arguments.socket, log, channel.CoreChannel), stopping)
    else:
        driven = kubelet.Kubelet(arguments.socket, log)
        threading.Thread(target=orders.obey, args=(driven,), daemon=True).start()
        scenarios.SCENARIOS[arguments.scenario](driven, stopping, arguments.canary)


def _end_loudly(failure: threading.ExceptHookArgs) -> None:
    """A thread that dies of a mistake must not leave a driver that seems to work."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


if __name__ == "__main__":
    main()
