"""What the agent costs while it traces a real node: CPU, memory, loss. Needs root and containerd.

usage: agent.py [SECONDS]
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.live.tracer import traced
from tests.rig import driver, node

TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU the process used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> dict[str, float]:
    """MiB: resident, of it the ring buffer's two mappings, and the peak."""
    rollup = Path(f"/proc/{pid}/smaps").read_text()
    ring = sum(
        int(found[1]) for found in re.finditer(r"anon_inode:bpf-map\n(?:.*\n)*?Rss: +(\d+) kB", rollup)
    )  # each mapping's own Rss line follows its head
    status = Path(f"/proc/{pid}/status").read_text()
    resident, peak = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "VmHWM"))
    return {"resident": resident / 1024, "ring": ring / 1024, "peak": peak / 1024}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with node.Node() as running, tempfile.TemporaryDirectory() as directory:
        with traced(running.socket, Path(directory)) as tracer:
            pid = tracer.process.pid
            time.sleep(2)
            before = cpu(pid)
            time.sleep(seconds / 2)
            print(f"idle: {100 * (cpu(pid) - before) / (seconds / 2):.2f} % of a core")
            with driver.running(running.socket, Path(directory, "oracle.jsonl"), "demo"):
                time.sleep(3)
                before, begun = cpu(pid), len(tracer.everything("calls"))
                time.sleep(seconds)
                used = cpu(pid) - before
                calls = len(tracer.everything("calls")) - begun
            held = memory(pid)
            health = tracer.get("/healthz")
        print(f"demo: {100 * used / seconds:.2f} % of a core at {calls / seconds:.0f} calls/s")
        once = held["resident"] - held["ring"] / 2
        print(f"memory: {held['resident']:.0f} MiB, {once:.0f} with the ring counted once; peak {held['peak']:.0f}")
        print(f"loss: {health['lost_records']} records, {health['gaps']} gaps")


main()
