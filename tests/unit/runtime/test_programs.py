"""Which step a program is, by its command line as containerd and CRI-O give it."""

import pytest

from tests.unit.runtime.node import cni, runc, shim_start
from tests.unit.wire.shim import C1, E1, S1
from tracer.records import Exec
from tracer.runtime.programs import program
from tracer.runtime.step import Step

BUNDLE = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{C1}"


def of(*argv, comm=None, parent=None, of_runtime=False, folder=None, **env):
    name = argv[0].rpartition("/")[2][:15] if comm is None else comm
    return program(Exec(1, 2, 3, name, list(argv), env), parent, of_runtime=of_runtime, folder=folder)


@pytest.mark.parametrize(
    "argv,verb,ident,exec_id",
    [
        (runc("create", "--bundle", BUNDLE, "--pid-file", f"{BUNDLE}/init.pid", C1), "create", C1, None),
        (runc("start", C1), "start", C1, None),
        (runc("kill", C1, "9"), "kill", C1, None),
        (runc("kill", "--all", C1, "15"), "kill", C1, None),
        (runc("delete", "--force", C1), "delete", C1, None),
        (runc("update", "--resources=-", C1), "update", C1, None),
        (runc("exec", "--process", "/tmp/p", "--detach", "--pid-file", f"{BUNDLE}/{E1}.pid", C1), "exec", C1, E1),
        (["runc", "--root=/r", "exec", "--pid-file", "/tmp/pidfile42", "--process", "/tmp/p", C1], "exec", C1, None),
        (["/usr/bin/crun", "--root", "/run/crun", "--systemd-cgroup", "state", C1], "state", C1, None),
        (["runc", "--root", "create", "start", C1], "start", C1, None),  # an option's value is no verb
    ],
)  # fmt: skip
def test_runcs_verb_container_and_exec_id(argv, verb, ident, exec_id):
    found = of(*argv)
    assert (found.kind, found.name, found.id, found.exec_id) == ("runc", verb, ident, exec_id)
    assert found.session == (verb == "exec")


def test_runc_init_and_a_shims_daemon_are_no_steps():
    assert of("runc", "init", comm="exe") is None
    assert of("/usr/sbin/runc", "init") is None
    assert of("/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", S1, "-address", "/run/x.sock") is None


@pytest.mark.parametrize("of_runtime", [True, False])
def test_a_shims_start_has_its_id(of_runtime):
    found = of(*shim_start(S1), of_runtime=of_runtime)
    assert (found.kind, found.name, found.id) == ("exec", "containerd-shim-runc-v2 start", S1)


def test_conmon_runs_a_container_or_a_command_in_one():
    assert of("/usr/bin/conmon", "-b", "/x", "-c", C1, "-u", C1).session is False
    found = of("/usr/bin/conmon", "-c", C1, "-n", "k8s_main", "-e", "-l", "/x")
    assert (found.kind, found.name, found.id, found.session) == ("exec", "conmon", C1, True)


def test_a_plugin_is_told_by_its_environment_with_the_sandbox_and_the_pod():
    found = of("/opt/cni/bin/bridge", **cni("ADD", S1, "web", "/var/run/netns/abc"))
    assert (found.kind, found.name, found.command, found.id, found.pod_uid, found.netns) == (
        "cni", "bridge", "ADD", S1, "uid-web", "abc",
    )  # fmt: skip


def test_without_an_environment_a_plugin_is_told_by_where_it_lies_if_the_runtime_runs_it():
    assert of("/opt/cni/bin/bridge", of_runtime=True).kind == "cni"
    assert of("/opt/cni/bin/bridge") is None


def test_a_script_in_a_plugins_place_has_the_plugins_name():
    found = of("/bin/sh", "/opt/cni/bin/bridge", comm="bridge", of_runtime=True)
    assert (found.kind, found.name) == ("cni", "bridge")


def test_a_plugins_children_are_plugins_only_where_plugins_lie():
    parent = Step("1", "cni", "bridge", 1, command="ADD", subject=S1)
    env = cni("ADD", S1, "web")
    ipam = of("/srv/plugins/host-local", parent=parent, folder="/srv/plugins", **env)
    tool = of("sleep", "5", parent=parent, folder="/srv/plugins", **env)
    assert of("/usr/sbin/iptables", parent=parent, folder="/srv/plugins", **env).kind == "exec"
    assert (ipam.kind, ipam.name, ipam.command, ipam.id) == ("cni", "host-local", "ADD", S1)
    assert (tool.kind, tool.name) == ("exec", "sleep")


def test_pinns_tells_the_namespace_it_makes():
    assert of("/usr/local/bin/pinns", "-d", "/var/run", "-f", "abc-1", "--net", of_runtime=True).netns == "abc-1"


def test_other_programs_are_steps_when_the_runtime_itself_ran_them():
    assert of("unpigz", "-d", "-c").name == "unpigz"
    assert of("apparmor_parser", "-V", of_runtime=True).name == "apparmor_parser"
    assert of("/pause") is None
    assert of("sh", "-c", "runc start it") is None


@pytest.mark.parametrize(
    "argv", [[], [""], ["runc"], ["runc", "--root"], ["conmon", "-c"], ["/usr/bin/containerd-shim"]]
)
def test_a_command_line_that_says_nothing_is_no_trouble(argv):
    program(Exec(1, 2, 3, "", argv), None, of_runtime=True)
    program(Exec(1, 2, 3, "runc", argv, {"CNI_COMMAND": "", "CNI_ARGS": ";;=;x"}), None, of_runtime=False)
