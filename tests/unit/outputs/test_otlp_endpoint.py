"""The URL of a collector: understood, or refused in one line that says what to give."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.outputs.otlp_receiver import grpc_collector
from tests.unit.replayed import DATA
from tracer.errors import TracerError
from tracer.outputs.otlp.endpoint import Endpoint, endpoint

COMMAND = str(Path(sys.executable).with_name("criscope"))


@pytest.mark.parametrize(
    ("url", "grpc", "secure", "address"),
    [
        ("grpc://collector:4317", True, False, "collector:4317"),
        ("grpc://collector", True, False, "collector:4317"),
        ("grpc://collector/", True, False, "collector:4317"),
        ("grpcs://collector:443", True, True, "collector:443"),
        ("grpc://[::1]:4317", True, False, "[::1]:4317"),
        ("http://127.0.0.1", False, False, "http://127.0.0.1:4318"),
        ("http://127.0.0.1:4318/", False, False, "http://127.0.0.1:4318"),
        ("https://tempo.example/otlp", False, True, "https://tempo.example:4318/otlp"),
    ],
)
def test_a_url_says_protocol_security_and_place(url, grpc, secure, address):
    assert endpoint(url) == Endpoint(url, grpc, secure, address)


BAD = [
    "", "collector:4317", "ftp://collector", "grpc://", "grpc://h:99999", "grpc://h:x", "grpc://h/path", "http://h?q=1",
    "http://[::1", "unix:///x",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD)
def test_any_other_is_refused_in_a_line_that_says_what_to_give(url):
    with pytest.raises(TracerError, match=r"grpc(s)?://") as refused:
        endpoint(url)
    assert "\n" not in str(refused.value)


def test_a_password_in_the_url_is_not_repeated():
    with pytest.raises(TracerError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        endpoint("http://user:secret@collector")
    assert "secret" not in str(refused.value)


def run(*arguments, expect):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=100)
    assert done.returncode == expect, done.stderr
    return done.stderr


def test_the_command_sends_the_traces_of_a_capture():
    with grpc_collector() as collector:
        err = run("export", "otlp", "--otlp", collector.url, DATA / "k120.jsonl.gz", expect=0)
        assert f"{len(collector.spans)} spans sent to {collector.url}" in err
        assert len(collector.spans) > 200


def test_the_command_sends_the_traces_of_a_store(tmp_path):
    store = tmp_path / "s.sqlite"
    run("replay", DATA / "k120.jsonl.gz", "--store", store, expect=0)
    with grpc_collector() as collector:
        run("export", "otlp", "--otlp", collector.url, "--store", store, "--since", "1h", expect=0)
        of_store = {(span.trace_id, span.span_id) for span in collector.spans}
    with grpc_collector() as collector:
        run("export", "otlp", "--otlp", collector.url, DATA / "k120.jsonl.gz", expect=0)
        assert {(span.trace_id, span.span_id) for span in collector.spans} == of_store


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_dead_collector_is_one_clear_line_and_exit_code_2(url):
    (line,) = run("export", "otlp", "--otlp", url, DATA / "k120.jsonl.gz", expect=2).strip().splitlines()
    assert url in line
    assert "did not take the spans" in line


def test_a_bad_url_is_one_clear_line_before_anything_is_traced():
    (line,) = run("run", "--otlp", "collector:4317", "--listen", "127.0.0.1:0", expect=2).strip().splitlines()
    assert "grpc://HOST:4317" in line
