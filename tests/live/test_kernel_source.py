"""The source as a whole: waiting, clocks, refusals, and what is left of its privileges."""

import json
import re
import select
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from platform import machine

import pytest

from tests.live.traffic import Server, data
from tracer.errors import KernelError, TracerError
from tracer.kernel.probes import PROGRAMS
from tracer.kernel.program_object import ProbeReport, ProgramObject, refusal
from tracer.kernel.source import DRAIN_SECONDS, KernelSource

BPF = Path(__file__).parents[2] / "bpf"


def python(program: str, *arguments: str, through: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*through, sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, cwd=BPF.parent, capture_output=True, text=True, check=False)


def test_records_come_within_the_timer_and_end_with_close(tmp_path):
    with KernelSource([f"{tmp_path}/s.sock"], processes=False) as source, Server(tmp_path / "s.sock") as server:
        found = []
        reader = threading.Thread(target=lambda: found.extend((each, time.monotonic_ns()) for each in source.records()))
        reader.start()
        client, served = server.connect()
        with client, served:
            for _ in range(20):
                client.send(b"x")
                served.recv(1)
                time.sleep(0.01)
        time.sleep(2 * DRAIN_SECONDS)
        source.close()
        reader.join(5)
    assert not reader.is_alive()
    assert len(found) == 42
    latest = max(noticed - record.time for record, noticed in found)
    assert latest < 4 * DRAIN_SECONDS * 1e9, "a few bytes wake nobody, so the timer must"
    source.close()
    assert source.drain() == []
    assert list(source.records()) == []
    assert source.counters() == {"records": 42}


def test_the_descriptor_becomes_readable_when_a_sixteenth_of_the_ring_is_full(tmp_path):
    ring = 1 << 20
    with (
        KernelSource([f"{tmp_path}/s.sock"], ring_bytes=ring, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
        select.epoll() as waiting,
    ):
        waiting.register(source.fileno(), select.EPOLLIN)
        client, served = server.connect()
        with client, served:
            client.send(b"x" * 1000)
            served.recv(1000)
            assert waiting.poll(0.05) == []
            for _ in range(ring // 16 // 1000):
                client.send(b"x" * 1000)
                served.recv(1000)
            assert waiting.poll(0.05) == [(source.fileno(), select.EPOLLIN)]
        assert len(data(source.drain())) == 2 * (ring // 16 // 1000 + 1)


def test_drain_takes_no_more_than_asked_and_loses_nothing_between(tmp_path):
    with KernelSource([f"{tmp_path}/s.sock"], processes=False) as source, Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        with client, served:
            for _ in range(10):
                client.send(b"x")
                served.recv(1)
        batches = []
        while batch := source.drain(3):
            batches.append(batch)
    assert [len(batch) for batch in batches] == [3] * 7 + [1]
    sent = [each.offset for batch in batches for each in data(batch) if each.direction == "send"]
    assert sent == list(range(10))


def test_times_become_wall_clock_times(tmp_path):
    with KernelSource([f"{tmp_path}/s.sock"], processes=False) as source, Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        before = time.time_ns()
        client.send(b"x")
        after = time.time_ns()
        client.close()
        served.close()
        (sent,) = data(source.drain())
        assert before - 1_000_000 <= sent.time + source.realtime_offset_ns <= after + 1_000_000
        source.realtime_offset_ns = 0
        source.refresh_realtime_offset()
        assert abs(time.monotonic_ns() + source.realtime_offset_ns - time.time_ns()) < 1_000_000


def test_every_program_is_reported():
    with KernelSource(["/unused"]) as source:
        assert source.probes == [ProbeReport(each, attached=True) for each in PROGRAMS["socket"] + PROGRAMS["process"]]
    with KernelSource(["/unused"], processes=False) as source:
        assert [each.program for each in source.probes] == list(PROGRAMS["socket"])


@pytest.mark.parametrize("refused", [["exit"], ["fork"], ["fork", "exec", "exit", "oom"]])
def test_a_program_the_kernel_refuses_is_reported_and_the_others_run(tmp_path, monkeypatch, refused):
    """The real programs, but for some that ask for a tracepoint no kernel has."""
    shutil.copytree(BPF, tmp_path / "bpf")
    program = tmp_path / "bpf" / "process.bpf.c"
    text, number = re.subn(
        rf'"tp_btf/\w+"(?=\)\nint (BPF_PROG\()?process_({"|".join(refused)})\b)',
        '"tp_btf/no_such_tracepoint"',
        program.read_text(),
    )
    assert number == len(refused)
    program.write_text(text)
    subprocess.run(["make", "-s", "-C", tmp_path / "bpf", f"OBJECTS={tmp_path}", "PROGRAMS=process"], check=True)
    shipped = ProgramObject.shipped

    def shipped_but_one(name: str) -> ProgramObject:
        if name == "process":
            return ProgramObject(name, (tmp_path / f"process.{machine()}.bpf.o").read_bytes())
        return shipped(name)

    monkeypatch.setattr(ProgramObject, "shipped", shipped_but_one)
    with KernelSource([f"{tmp_path}/s.sock"]) as tracing:
        reports = {each.program: each for each in tracing.probes}
        assert [name for name, each in reports.items() if not each.attached] == [f"process_{each}" for each in refused]
        assert all("no_such_tracepoint" in reports[f"process_{each}"].reason for each in refused)
        assert tracing.counters()["lost_records"] == 0


def test_the_verifiers_log_is_in_the_error(tmp_path):
    program = tmp_path / "bad.bpf.c"
    program.write_text("""
        #include <linux/bpf.h>
        #include <bpf/bpf_helpers.h>
        SEC("tp_btf/sock_send_length") int bad(unsigned long long *arguments)
        {
            return *(int *)(arguments[1]);
        }
        char LICENSE[] SEC("license") = "GPL";""")
    shutil.copy(BPF / "Makefile", tmp_path)
    subprocess.run(["make", "-s", "-C", tmp_path, f"OBJECTS={tmp_path}", "PROGRAMS=bad"], check=True)
    image = (tmp_path / f"bad.{machine()}.bpf.o").read_bytes()
    with ProgramObject("bad", image) as bad, pytest.raises(KernelError) as caught:
        bad.load()
    assert "BEGIN PROG LOAD LOG" in caught.value.log
    assert "invalid mem access 'scalar'" in refusal(caught.value.log)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ring_bytes": 5000}, "ring buffer of 5000 bytes: give a power of two, at least 4096"),
        ({"ring_bytes": 2048}, "ring buffer of 2048 bytes: give a power of two, at least 4096"),
        ({"sockets": ["run/x.sock"]}, "socket path 'run/x.sock': give an absolute path or @name, with * at the end"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(wrong, message):
    with pytest.raises(TracerError, match=re.escape(message)):
        KernelSource(**{"sockets": ["/unused"], **wrong})


def test_without_privileges_the_error_says_what_to_do():
    done = python("""
        import os
        from tracer.kernel.source import KernelSource
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        try:
            KernelSource(["/unused"])
        except Exception as err:
            print(type(err).__name__, err)
    """)
    assert done.stdout == (
        "KernelError trace sockets: Operation not permitted: run as root, or with CAP_BPF and CAP_PERFMON\n"
    ), done.stderr


def test_two_capabilities_are_enough_for_an_ordinary_user():
    capabilities = "-all,+bpf,+perfmon"
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    sets = (f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", f"--bounding-set={capabilities}")
    program = """
        from tracer.kernel.privileges import drop_privileges
        from tracer.kernel.source import KernelSource
        with KernelSource(["/unused"]) as source:
            drop_privileges()
            print(all(probe.attached for probe in source.probes), source.drain(), source.counters()["lost_records"])
    """
    done = python(program, through=user + sets)
    assert done.stdout.startswith("True ["), done.stderr
    assert done.stdout.endswith("] 0\n")


def test_capabilities_can_be_dropped_for_good_and_tracing_goes_on(tmp_path):
    done = python(
        """
        import json, subprocess, sys
        from pathlib import Path
        from tests.live.test_kernel_processes import Runtime
        from tests.live.traffic import data
        from tracer.kernel.privileges import drop_privileges
        from tracer.kernel.source import KernelSource
        from tracer.records import Exec

        directory = Path(sys.argv[1])
        source = KernelSource([f"{directory}/*"])
        drop_privileges()
        status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
        shell = subprocess.run(["grep", "^Cap", "/proc/self/status"], capture_output=True, text=True).stdout
        runtime = Runtime(directory / "s.sock", source)
        records = runtime.request("/bin/true", "new runtime")
        runtime.close()
        executed = [each.argv for each in records if isinstance(each, Exec) and each.ppid == runtime.pid]
        told = data(records)[0].data.decode()
        try:
            KernelSource(["/unused"])
            again = "loads"
        except Exception as err:
            again = str(err)
        print(json.dumps([status, shell, told, source.counters(), executed, again]))
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    status, of_a_child, told, counters, executed, again = json.loads(done.stdout)
    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    assert {name: status[name] for name in sets} == dict.fromkeys(sets, "0" * 16)
    assert status["NoNewPrivs"] == "1"
    assert set(re.findall(r"[0-9a-f]{16}", of_a_child)) == {"0" * 16}, "root gets none back by executing something"
    assert json.loads(told) == [["/bin/true", "new runtime"], {}]
    assert counters["records"] > 0
    assert counters["lost_records"] == counters["refused"] == 0
    assert executed == [["/bin/true", "new runtime"]], "a runtime that starts later is followed without any capability"
    assert "Operation not permitted" in again


def test_capabilities_are_not_dropped_by_halves():
    done = python("""
        import threading
        from tracer.kernel.privileges import drop_privileges
        stop = threading.Event()
        threading.Thread(target=stop.wait).start()
        try:
            drop_privileges()
        except Exception as err:
            print(type(err).__name__, err)
        stop.set()
    """)
    assert done.stdout == (
        "TracerError capabilities can only be dropped while there is one thread: drop them before others start\n"
    ), done.stderr
