"""`criscope run --otlp` beside a real containerd: the traces of a pod that starts, and a collector that is away."""

import re
import time

import pytest

from tests.live.tracer import traced
from tests.rig import driver
from tests.unit.outputs.otlp_receiver import grpc_collector, plain


def resident(tracer):
    """MiB."""
    (bytes_,) = re.findall(r"^criscope_process_resident_memory_bytes (\S+)", tracer.get("/metrics"), re.MULTILINE)
    return float(bytes_) / 2**20


def test_a_pods_start_arrives_as_one_tree_down_to_runc(node, tmp_path):
    with grpc_collector() as collector:
        with traced(node.socket, tmp_path, "--otlp", collector.url, "--otlp-share", "1") as tracer:
            driver.run(node.socket, tmp_path / "oracle.jsonl", "pod")
            tracer.settle()
            time.sleep(4)  # what is over is decided after two seconds
            of_rest = {row["id"] for row in tracer.everything("sync-passes") if row["outcome"] != "open"}
            shown = tracer.get("/metrics")
            tracer.stop()
        spans = {span.span_id: span for span in collector.spans}
        assert len(spans) == len(collector.spans)
        passes = {plain(span.attributes).get("criscope.sync_pass.id"): span for span in spans.values()}
        assert of_rest <= passes.keys()

        def path(span):
            parent = spans.get(span.parent_span_id)
            return (*(path(parent) if parent else ()), span.name)

        chains = {tuple(name.rpartition("/")[2] for name in path(span)) for span in spans.values()}
        assert ("sync create", "CreateContainer") in chains
        assert ("sync create", "StartContainer", "shim Start", "runc start") in chains
        assert ("sync create", "RunPodSandbox", "cni bridge ADD") in chains
        assert ("relist generic", "ListPodSandbox") in chains
        counted = collector.families()["criscope_cri_calls"].sum.data_points
        assert sum(point.as_double for point in counted) >= len([name for name in chains if name[0].startswith("sync")])
    assert re.search(r'criscope_otlp_exports_total\{result="ok",signal="traces"\} [1-9]', shown) or re.search(
        r'criscope_otlp_exports_total\{signal="traces",result="ok"\} [1-9]', shown
    )


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_collector_that_is_away_is_said_once_and_tracing_goes_on(node, tmp_path, url):
    with traced(node.socket, tmp_path, "--otlp", url, "--otlp-share", "1") as tracer:
        driver.run(node.socket, tmp_path / "oracle.jsonl", "pod")
        tracer.settle()
        time.sleep(6)
        assert len(tracer.everything("calls")) > 10
        assert tracer.get("/healthz")["tracing"]
        begun = time.monotonic()
        assert tracer.stop() == 0
        assert time.monotonic() - begun < 10
        assert len(re.findall("does not take our traces", tracer.log.read_text())) == 1
        assert "Traceback" not in tracer.log.read_text()


def test_exporting_takes_no_more_memory_than_said(node, tmp_path):
    """17 MiB as measured; nothing without a collector."""
    taken = {}
    for url in ("", "grpc://127.0.0.1:9"):
        directory = tmp_path / (url.partition(":")[0] or "none")
        directory.mkdir()
        with traced(node.socket, directory, *(["--otlp", url, "--otlp-share", "1"] if url else [])) as tracer:
            driver.run(node.socket, directory / "oracle.jsonl", "pod")
            tracer.settle()
            assert ("criscope_otlp" in tracer.get("/metrics")) == bool(url)
            taken[url] = resident(tracer)
    assert taken["grpc://127.0.0.1:9"] - taken[""] < 30
