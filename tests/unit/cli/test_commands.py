"""The command as a user without root meets it: one clear line for what is wrong, stable output for scripts."""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.replayed import DATA, replayed

COMMAND = str(Path(sys.executable).with_name("criscope"))


def run(*arguments, expect=0, timeout=60, **options):
    """Exit code must be `expect`; (standard output, standard error)."""
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == expect, done.stderr
    return done.stdout, done.stderr


def test_help_names_every_command_and_its_options():
    out, _ = run("--help")
    for command in ("run", "record", "replay", "why", "top", "export", "doctor"):
        assert command in out
        text, _ = run(command, "--help")
        assert "--help" in text


def test_replay_prints_one_json_object():
    out, err = run("replay", DATA / "k120.jsonl.gz", "--json", "-")
    found = json.loads(out)
    assert found.keys() >= {"capture", "calls", "relists", "pleg_events", "sync_passes", "steps", "findings", "stats"}
    assert len(found["calls"]) == len(replayed("k120")["calls"])
    assert err == ""


def test_replay_sums_up_when_no_output_is_asked_for():
    out, _ = run("replay", DATA / "k120.jsonl.gz")
    assert re.search(r"\d+ calls, \d+ relists", out)


def test_replay_gives_the_same_each_time():
    assert run("replay", DATA / "startup.jsonl.gz", "--json", "-") == run(
        "replay", DATA / "startup.jsonl.gz", "--json", "-"
    )


@pytest.fixture
def damaged(tmp_path):
    """Capture files of every kind of damage, by name; (path, what the message says)."""
    whole = (DATA / "k120.jsonl.gz").read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    files = {
        "cut": (whole[: len(whole) // 2], "cut off"),
        "line": (gzip.compress(b"".join(lines[:50]) + b'{"ev": "send", nonsense}\n' + b"".join(lines[50:])), "damaged"),
        "foreign": (b"\x7fELF" + bytes(1000), "not a criscope capture"),
        "text": (b"hello\n", "not a criscope capture"),
        "empty": (b"", "is empty"),
        "version": (gzip.compress(b'{"format":"cri-capture-jsonl","version":9,"realtime_offset_ns":0}\n'), "version 9"),
    }
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    return {name: (tmp_path / name, says) for name, (_, says) in files.items()}


@pytest.mark.parametrize("kind", ["cut", "line", "foreign", "text", "empty", "version"])
def test_a_bad_capture_is_one_clear_line_and_exit_code_2(damaged, kind):
    path, says = damaged[kind]
    _, err = run("replay", path, expect=2)
    (line,) = err.strip().splitlines()
    assert str(path) in line
    assert says in line


@pytest.mark.parametrize("kind", ["cut", "line"])
def test_what_came_before_the_damage_is_still_given(damaged, kind):
    out, _ = run("replay", damaged[kind][0], "--json", "-", expect=2)
    assert len(json.loads(out)["calls"]) > 2


def test_a_file_that_is_not_there_is_one_clear_line():
    _, err = run("replay", "/nowhere/x.gz", expect=2)
    assert err.strip() == "criscope: /nowhere/x.gz: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("nonsense", "give ADDR:PORT"),
        ("127.0.0.1:99999", "give ADDR:PORT"),
        ("example.com:80", "no IP address"),
        ("0.0.0.0:9559", "only loopback"),
    ],
)
def test_a_bad_address_is_one_clear_line(listen, says):
    _, err = run("replay", DATA / "k120.jsonl.gz", "--serve", "--listen", listen, expect=2)
    (line,) = err.strip().splitlines()
    assert says in line


def test_a_port_that_is_taken_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        _, err = run("replay", DATA / "k120.jsonl.gz", "--serve", "--listen", address, expect=2)
    (line,) = err.strip().splitlines()
    assert address in line
    assert "another criscope" in line


def test_an_unknown_option_is_a_usage_error():
    _, err = run("replay", "--nonsense", expect=2)
    assert "--nonsense" in err


def as_nobody():
    os.setgid(65534)
    os.setuid(65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become somebody else")
@pytest.mark.parametrize(
    "command", [["run", "--store", "/tmp/criscope-nobody/x.sqlite"], ["record", "-o", "/tmp/x.gz"]]
)
def test_without_root_tracing_says_what_is_needed(command):
    _, err = run(*command, expect=2, preexec_fn=as_nobody, cwd="/")
    (line,) = err.strip().splitlines()
    assert "root" in line
    assert "CAP_BPF" in line


def test_completion_is_offered():
    out, _ = run("--show-completion", "bash", env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert "criscope" in out


def test_every_command_and_option_is_documented():
    text = (DATA.parents[1] / "docs" / "cli.md").read_text()
    import typer.main

    from tracer.cli import app

    for name, command in typer.main.get_command(app).commands.items():
        assert f"## `criscope {name}`" in text, name
        parts = getattr(command, "commands", {}).values()
        for parameter in (*command.params, *(each for part in parts for each in part.params)):
            for option in parameter.opts:
                if option.startswith("--"):
                    assert f"`{option}`" in text, (name, option)
            if parameter.envvar:
                assert f"`{parameter.envvar}`" in text, (name, parameter.envvar)


def test_the_architecture_names_every_module():
    root = DATA.parents[1]
    text = (root / "docs" / "architecture.md").read_text()
    modules = [path.name for path in (root / "tracer").glob("*.py") if path.name != "__init__.py"]
    minor = {
        "errors.py",
        "rows.py",
        "texts.py",
        "paths.py",
        "protocol.py",
        "kept.py",
        "inventory.py",
        "doctor.py",
        "exchange.py",
    }
    assert [name for name in modules if name not in text and name not in minor] == []
    for named in re.findall(r"tracer/(\w+\.py)", text):
        assert (root / "tracer" / named).exists(), named


def test_why_of_a_capture_is_one_sentence_with_its_evidence_and_what_to_try():
    out, _ = run("why", DATA / "truth.jsonl.gz")
    assert out.startswith("Nothing is slow: the last relist began")
    found = json.loads(run("why", DATA / "truth.jsonl.gz", "--json")[0])
    assert found["state"] == "quiet"
    assert found["pleg"]["healthy"]


def test_why_of_a_store_reads_it_without_the_daemon(tmp_path):
    store = tmp_path / "s.sqlite"
    run("replay", DATA / "truth.jsonl.gz", "--store", store)
    assert run("why", "--store", store)[0].startswith("Nothing was found.")
    _, err = run("why", "--store", tmp_path / "missing.sqlite", expect=2)
    assert "No such file" in err
    (tmp_path / "other").write_bytes(b"x" * 100)
    assert "no store of criscope" in run("why", "--store", tmp_path / "other", expect=2)[1]


def test_why_says_what_to_do_when_nobody_answers():
    _, err = run("why", "--url", "http://127.0.0.1:9", expect=2)
    assert err.count("\n") == 1
    assert "criscope run" in err


def test_a_perfetto_trace_of_a_capture_and_of_its_store_hold_the_same(tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    store, one, two = tmp_path / "s.sqlite", tmp_path / "one", tmp_path / "two"
    run("replay", DATA / "k120.jsonl.gz", "--store", store)
    run("export", "perfetto", DATA / "k120.jsonl.gz", "--output", one)
    run("export", "perfetto", "--store", store, "--since", "1h", "--output", two)
    sizes = [len(Trace.FromString(path.read_bytes()).packet) for path in (one, two)]
    assert sizes[0] == sizes[1] > 500
    assert "--force" in run("export", "perfetto", DATA / "k120.jsonl.gz", "--output", one, expect=2)[1]


def test_where_nobody_answers_no_empty_file_is_left(tmp_path):
    run("export", "perfetto", "--url", "http://127.0.0.1:9", "--output", tmp_path / "trace", expect=2)
    assert list(tmp_path.iterdir()) == []
