"""The rules in the order of causes, the deepest first: what an earlier one explains a later one leaves alone."""

from tracer.findings.api_unimplemented import ApiUnimplemented
from tracer.findings.board import Rule
from tracer.findings.cleanup_failing import CleanupFailing
from tracer.findings.client_errors import ClientErrors
from tracer.findings.client_heavy import ClientHeavy
from tracer.findings.client_limit import ClientLimit
from tracer.findings.clock_step import ClockStep
from tracer.findings.cni import CniFailing, CniSlow
from tracer.findings.container_blocked import ContainerBlocked
from tracer.findings.evented_pleg_fallback import EventedPlegFallback
from tracer.findings.events_unheeded import EventsUnheeded
from tracer.findings.exec_load import ExecRequests, ProbeLoad
from tracer.findings.exit_lost import ExitLost
from tracer.findings.hook_slow import HookSlow
from tracer.findings.host_limit import HostLimit
from tracer.findings.image_pull import ImagePullFailed, ImagePullSlow
from tracer.findings.image_wanted import ImagePullQueued, ImagePullRefused
from tracer.findings.kubelet_stalled import KubeletStalled
from tracer.findings.list_size import DeadContainers, ListSize
from tracer.findings.log_rotation_failing import LogRotationFailing
from tracer.findings.oom_kill import OomKill
from tracer.findings.pleg_stuck import PlegStuck
from tracer.findings.pleg_unhealthy import PlegUnhealthy
from tracer.findings.pod_not_started import PodNotStarted
from tracer.findings.probe_timeout import ProbeTimeout
from tracer.findings.relist_blocked import RelistBlocked
from tracer.findings.relist_slow import RelistSlow
from tracer.findings.runc_slow import RuncSlow
from tracer.findings.runtime_down import RuntimeDown
from tracer.findings.runtime_not_reading import RuntimeNotReading
from tracer.findings.runtime_slow import RuntimeSlow
from tracer.findings.sandbox_churn import SandboxChurn
from tracer.findings.shim_hung import ShimHung
from tracer.findings.start_failed import StartFailed
from tracer.findings.start_wave import StartWave
from tracer.findings.starts_saturated import StartsSaturated
from tracer.findings.stats_cost import StatsCost
from tracer.findings.stop_ignored import StopIgnored
from tracer.findings.stop_stuck import StopStuck
from tracer.findings.tracing_incomplete import TracingIncomplete
from tracer.findings.writes_stalled import WritesStalled


def rules() -> list[Rule]:
    """A new instance of every rule."""
    return [
        RuntimeDown(),
        RuntimeNotReading(),
        KubeletStalled(),
        ShimHung(),
        CniSlow(),
        CniFailing(),
        RuncSlow(),
        HostLimit(),
        RuntimeSlow(),
        StartsSaturated(),
        WritesStalled(),
        StartFailed(),
        ImagePullFailed(),
        ImagePullSlow(),
        ImagePullQueued(),
        ImagePullRefused(),
        ContainerBlocked(),
        StopStuck(),
        ProbeTimeout(),
        HookSlow(),
        ProbeLoad(),
        ExecRequests(),
        StopIgnored(),
        CleanupFailing(),
        ListSize(),
        DeadContainers(),
        StatsCost(),
        LogRotationFailing(),
        ClientErrors(),
        ClientHeavy(),
        ClientLimit(),
        ApiUnimplemented(),
        ExitLost(),
        SandboxChurn(),
        StartWave(),
        EventedPlegFallback(),
        EventsUnheeded(),
        OomKill(),
        ClockStep(),
        TracingIncomplete(),
        RelistBlocked(),
        RelistSlow(),
        PlegStuck(),
        PodNotStarted(),
        PlegUnhealthy(),
    ]
