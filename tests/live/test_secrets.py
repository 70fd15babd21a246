"""Secrets planted wherever a call can carry one are in nothing that criscope writes, logs, serves or exports."""

import base64
import contextlib
import gzip
import json
import signal
import subprocess
import time
import uuid

import pytest

from tests.live.tracer import COMMAND, traced
from tests.rig import driver

WORDS = ("env", "command", "probe-output", "probe-argument", "auth-user", "auth-password", "auth-auth",
         "auth-identity-token", "auth-registry-token", "exec-out", "exec-err", "container-annotation",
         "pod-annotation", "missing")  # fmt: skip


@pytest.fixture(scope="module")
def outputs(node, tmp_path_factory):
    """(canary, name -> everything criscope put out while the driver's secrets crossed the socket)."""
    directory = tmp_path_factory.mktemp("secrets")
    canary = f"canary{uuid.uuid4().hex[:12]}"
    capture, oracle = directory / "capture.jsonl.gz", directory / "oracle.jsonl"
    command = [COMMAND, "record", "--output", str(capture), "--socket", str(node.socket)]
    command += ["--socket", f"{node.socket}.ttrpc", "--socket", "/run/containerd/s/*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as recording:
        with traced(node.socket, directory) as tracer:
            time.sleep(1)
            driver.run(node.socket, oracle, "secrets", "--canary", canary)
            tracer.settle()
            found = {
                path: json.dumps(tracer.everything(path)) for path in ("calls", "relists", "pleg-events", "sync-passes")
            }
            for path in ("/api/v1/pods", "/api/v1/pods/safe/vault/timeline?limit=1000", "/api/v1/pleg", "/healthz"):
                found[path] = json.dumps(tracer.get(path))
            found["metrics"] = tracer.get("/metrics")
            assert tracer.stop() == 0
            found["log"] = tracer.log.read_text()
            for part in ("", "-wal"):
                file = tracer.store.with_name(tracer.store.name + part)
                if file.exists():
                    found[f"store{part}"] = file.read_bytes().decode("latin-1")
        recording.send_signal(signal.SIGINT)
        found["log of record"] = recording.communicate(timeout=20)[0]
        assert recording.returncode == 0, found["log of record"]
    lines = gzip.decompress(capture.read_bytes()).decode().splitlines()
    found["capture"] = "\n".join(lines)
    found["capture's payloads"] = "\n".join(
        base64.b64decode(record.get("data", "")).decode("latin-1") for record in map(json.loads, lines)
    )
    found["capture's decoded errors"] = _errors(capture)
    replayed = subprocess.run([COMMAND, "replay", str(capture), "--json", "-"], capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stderr
    found["replay"] = replayed.stdout
    return canary, oracle.read_text(), found


def _errors(capture):
    """Every error text of the capture as its header blocks say it, before criscope shortens it."""
    from tests.unit.decode import events
    from tracer.capture import CaptureFile
    from tracer.paths import is_ttrpc
    from tracer.records import Data

    with contextlib.closing(CaptureFile(capture)) as source:
        records = [each for each in source.records() if isinstance(each, Data) and not is_ttrpc(each.path)]
    return "\n".join(str(event.call.error) for event in events(records)[0] if hasattr(event, "call"))


def test_the_secrets_did_cross_the_socket(outputs):
    _, oracle, found = outputs
    calls = [json.loads(line) for line in oracle.splitlines()]
    methods = {call["method"] for call in calls if call["kind"] == "call"}
    assert {"PullImage", "CreateContainer", "ExecSync", "RunPodSandbox"} <= methods
    assert len(json.loads(found["replay"])["calls"]) > 50


def test_no_output_holds_a_secret(outputs):
    canary, _, found = outputs
    leaks = [name for name, text in found.items() if canary in text]
    assert leaks == []


def test_no_output_holds_a_secret_in_base64(outputs):
    canary, _, found = outputs
    for shift in range(3):
        # The middle of the canary in base64, whatever stands before it.
        encoded = base64.b64encode(b"_" * shift + canary.encode())[4:-4].decode()
        assert [name for name, text in found.items() if encoded in text] == []


def test_a_recording_decodes_to_the_calls_that_run_saw(outputs):
    _, _, found = outputs
    seen = {(c["stream"], c["method"], c["status"], c["container"] and c["container"]["id"])
            for c in json.loads(found["calls"]) if c["client"]["comm"] == "kubelet"}  # fmt: skip
    recorded = {(c["stream"], c["method"], c["status"], c["container"] and c["container"]["id"])
                for c in json.loads(found["replay"])["calls"] if c["client"]["comm"] == "kubelet"}  # fmt: skip
    assert seen == recorded
