"""The rig's CRI proxy, between grpcio's client and server: what goes across untouched, and what the switches do."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from cri_api.v1 import api_pb2

from tests.rig.proxy import Proxy

PATH = "/runtime.v1.RuntimeService/"
SANDBOX, CONTAINER = "a" * 64, "b" * 64


class Runtime(grpc.GenericRpcHandler):
    """Answers each call with its request's bytes, some with more; keeps what it was sent."""

    def __init__(self, path):
        self.met = []
        self.cancelled = threading.Event()
        self.server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)])
        self.server.add_generic_rpc_handlers((self,))
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    def service(self, details):
        def answer(request, context):
            self.met.append((details.method, request, dict(context.invocation_metadata()), context.time_remaining()))
            method = details.method.rpartition("/")[2]
            if method == "Refused":
                context.abort(grpc.StatusCode.NOT_FOUND, 'no "such" thing: 100 % ü')
            if method == "Endless":
                context.add_callback(self.cancelled.set)
                self.cancelled.wait(20)
            yield {"RunPodSandbox": sandbox, "CreateContainer": container}.get(method, request)
            if method == "Stream":
                yield b"second"
            context.set_trailing_metadata((("said", "last"),))

        sandbox = api_pb2.RunPodSandboxResponse(pod_sandbox_id=SANDBOX).SerializeToString()
        container = api_pb2.CreateContainerResponse(container_id=CONTAINER).SerializeToString()
        return grpc.unary_stream_rpc_method_handler(answer)


@pytest.fixture
def runtime(tmp_path):
    running = Runtime(tmp_path / "runtime.sock")
    yield running
    running.cancelled.set()
    running.server.stop(0).wait()


@pytest.fixture
def proxy(runtime, tmp_path):
    with Proxy(tmp_path / "runtime.sock") as running:
        yield running


@pytest.fixture
def call(proxy):
    """Makes a call through the proxy; its answers and the call itself."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{proxy.socket}", options=options) as channel:

        def start(method, request=b"", timeout=20.0, **how):
            return channel.unary_stream(PATH + method, None, None)(request, timeout=timeout, **how)

        yield start


def ending(pending):
    with pytest.raises(grpc.RpcError) as raised:
        list(pending)
    return raised.value.code(), raised.value.details()


def test_messages_metadata_and_deadline_go_across_unchanged(call, runtime):
    request = bytes(range(256)) * 7
    pending = call("Version", request, metadata=(("key", "value"), ("key-bin", b"\0\xff")))
    assert list(pending) == [request]
    assert dict(pending.trailing_metadata()) == {"said": "last"}
    ((path, met, metadata, left),) = runtime.met
    assert (path, met) == (f"{PATH}Version", request)
    assert (metadata["key"], metadata["key-bin"]) == ("value", b"\0\xff")
    assert 15 < left <= 20


def test_an_empty_message_a_large_one_and_several_go_across(call):
    assert list(call("Version", b"")) == [b""]
    large = b"x" * (20 << 20)
    assert list(call("Version", large)) == [large]
    assert list(call("Stream", b"first")) == [b"first", b"second"]


def test_the_runtimes_own_status_goes_across(call):
    assert ending(call("Refused")) == (grpc.StatusCode.NOT_FOUND, 'no "such" thing: 100 % ü')


def test_a_call_that_its_client_cancels_is_cancelled_at_the_runtime(call, runtime):
    pending = call("Endless")
    while not runtime.met:
        time.sleep(0.01)
    pending.cancel()
    assert runtime.cancelled.wait(5)


def test_a_held_call_goes_on_when_the_block_ends_and_others_pass(proxy, call, runtime):
    with proxy.hang("Status") as trouble:
        held = call("Status", b"held")
        trouble.await_strike()
        assert list(call("Version", b"passes")) == [b"passes"]
        assert [path for path, *_ in runtime.met] == [f"{PATH}Version"]
    assert list(held) == [b"held"]


def test_a_held_call_that_its_client_gives_up_never_reaches_the_runtime(proxy, call, runtime):
    with proxy.hang("Status"):
        assert ending(call("Status", timeout=0.3))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert list(call("Version")) == [b""]
    assert [path for path, *_ in runtime.met] == [f"{PATH}Version"]


def test_a_delayed_call_is_late_by_so_much(proxy, call):
    with proxy.delay(0.3, "Status"):
        begun = time.monotonic()
        assert list(call("Status")) == [b""]
        assert 0.3 <= time.monotonic() - begun < 1


def test_a_failed_call_has_the_status_told_and_does_not_reach_the_runtime(proxy, call, runtime):
    with proxy.fail("UNAVAILABLE", 'a "made up" 100 % ü'):
        assert ending(call("Status")) == (grpc.StatusCode.UNAVAILABLE, 'a "made up" 100 % ü')
    assert runtime.met == []


def test_a_reset_call_has_no_status_of_its_own_and_the_connection_lives(proxy, call):
    with proxy.reset("Status"):
        assert ending(call("Status"))[0] == grpc.StatusCode.INTERNAL
        assert list(call("Version")) == [b""]


def test_a_severed_connection_takes_its_other_calls_with_it(proxy, call, runtime):
    other = call("Endless")
    while not runtime.met:
        time.sleep(0.01)
    with proxy.sever("Status"):
        assert ending(call("Status"))[0] == grpc.StatusCode.UNAVAILABLE
    assert ending(other)[0] == grpc.StatusCode.UNAVAILABLE
    assert list(call("Version", wait_for_ready=True)) == [b""]


def test_a_rule_chooses_by_pod_and_container_of_what_was_created_through_it(proxy, call):
    pod = api_pb2.PodSandboxConfig(metadata=api_pb2.PodSandboxMetadata(name="cart"))
    web = api_pb2.ContainerConfig(metadata=api_pb2.ContainerMetadata(name="web"))
    create = api_pb2.CreateContainerRequest(pod_sandbox_id=SANDBOX, config=web, sandbox_config=pod)
    list(call("RunPodSandbox", api_pb2.RunPodSandboxRequest(config=pod).SerializeToString()))
    list(call("CreateContainer", create.SerializeToString()))
    known = api_pb2.ExecSyncRequest(container_id=CONTAINER).SerializeToString()
    unknown = api_pb2.ExecSyncRequest(container_id="c" * 64).SerializeToString()
    for which in ({"pod": "cart"}, {"container": "w*"}, {"pod": "c?rt", "container": "web"}):
        with proxy.fail("ABORTED", "chosen", **which) as trouble:
            assert ending(call("ExecSync", known))[1] == "chosen"
            assert list(call("ExecSync", unknown)) == [unknown]
            assert trouble.strikes() == 1
    with proxy.fail("ABORTED", "chosen", pod="cart", container="cache"):
        assert list(call("ExecSync", known)) == [known]


def test_only_the_nth_call_is_struck_when_told_so(proxy, call):
    with proxy.fail("ABORTED", "second", "Status", nth=2) as trouble:
        assert list(call("Status")) == [b""]
        assert ending(call("Status"))[1] == "second"
        assert list(call("Status")) == [b""]
        assert trouble.strikes() == 1
