"""The words of the interface, as OpenAPI shows them. Answers come from stored JSON; a test holds it against these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0, description="Seconds.")]
Time = Annotated[
    str, Field(description="RFC 3339 in UTC, with nanoseconds.", examples=["2026-01-31T12:00:00.123456789Z"])
]
CallId = Annotated[str, Field(description="Id of a call: `GET /api/v1/calls/{id}`.")]


class Word(BaseModel):
    """Every field is always present; `null` is unknown, or does not apply, or is not over yet."""

    model_config = ConfigDict(extra="forbid")


class Pod(Word):
    """A pod."""

    namespace: str
    name: str
    uid: str


class Container(Word):
    """A container; name and attempt are null when only its id is known."""

    id: str | None
    name: str | None
    attempt: int | None = Field(description="Restarts before this one.")


class Client(Word):
    """The process that made a call."""

    pid: int = Field(description="0 when its end of the connection was not seen.")
    comm: str
    role: Literal["kubelet", "other"]


class Activity(Word):
    """What a call belongs to."""

    kind: Literal[
        "relist", "pod_relist", "sync", "terminate", "housekeeping", "container_gc", "sandbox_gc", "image_gc",
        "image_pull", "probe", "lifecycle_hook", "stats", "log_rotation", "runtime_status", "node_version", "startup",
        "cpu_manager", "exec_api", "volume", "device", "plugin_registration", "other_client", "unknown",
    ]  # fmt: skip
    id: str | None = Field(description="The relist's, sync pass' or probe's id where it is one; else its run's.")


class Call(Word):
    """One gRPC call."""

    id: str
    runtime: str = Field(description="Path at which the server bound its socket.")
    connection: str
    stream: int = Field(description="HTTP/2 stream.")
    client: Client
    service: str | None
    method: str | None
    method_source: Literal["header", "inferred", "unknown"]
    api: Literal["v1", "v1alpha2"] | None = Field(description="Of the CRI; null for other services.")
    start: Time = Field(description="The client sent the first byte of the request.")
    duration_seconds: Seconds | None = Field(description="Until the client had read the answer; null while open.")
    stage: Literal["sending", "request_wait", "service", "response_wait"] | None = Field(
        description="Where an open call is; null when it is over or that cannot be told."
    )
    request_wait_seconds: Seconds | None = Field(
        description="The request lay in the socket, unread by the server. Of an open call as far as it got."
    )
    service_seconds: Seconds | None = Field(description="From the request read to the answer sent.")
    response_wait_seconds: Seconds | None = Field(description="The answer lay in the socket, unread by the client.")
    status: str | None = Field(description="gRPC status, e.g. OK, NOT_FOUND; null when none was on the wire.")
    ended_by: Literal["server", "client_cancel", "deadline", "connection", "unknown"] | None = Field(
        description="null while open."
    )
    error: str | None = Field(description="The server's message, secrets removed.")
    deadline_seconds: Seconds | None
    request_bytes: int = Field(description="gRPC messages with their 5-byte prefix, without HTTP/2 framing.")
    response_bytes: int
    streaming: bool = Field(description="A server-streaming method: it lasts as long as it likes.")
    complete: bool = Field(description="False when bytes of it were missing: facts may be null that were on the wire.")
    pod: Pod | None
    container: Container | None
    sandbox_id: str | None
    image: str | None
    activity: Activity
    trace_id: str | None = Field(
        description="Of the client's own trace, where it sends one (`traceparent`): 32 hex digits."
    )
    span_id: str | None = Field(description="Of the client's own span around the call: 16 hex digits.")


class PlegEvent(Word):
    """What a relist told the kubelet's SyncLoop."""

    id: str
    time: Time
    type: Literal["ContainerStarted", "ContainerDied", "ContainerRemoved", "ContainerChanged", "PodSync"]
    pod: Pod
    pod_uid: str
    container_id: str = Field(description="A container's or a sandbox's: the PLEG counts both.")
    relist: str = Field(description="Id of the relist.")


class Inspection(Word):
    """The status calls for one changed pod."""

    pod: Pod
    start: Time
    duration_seconds: Seconds | None
    calls: list[CallId]


class Relist(Word):
    """One pass of the PLEG."""

    id: str
    kind: Literal["generic", "pod", "evented"] = Field(description="pod: on demand, for one pod (kubelet 1.36).")
    start: Time
    duration_seconds: Seconds | None
    interval_seconds: Seconds | None = Field(description="Since the start of the generic relist before.")
    list_sandboxes_seconds: Seconds | None
    list_containers_seconds: Seconds | None
    inspect_seconds: Seconds | None = Field(description="Sum of its inspections, which are serial.")
    sandboxes: int | None
    containers: int | None
    inspections: list[Inspection]
    outcome: Literal["ok", "failed", "open", "unknown"]
    complete: bool = Field(description="False when a part of it was not seen: its events may lack some.")
    calls: list[CallId]
    events: list[PlegEvent]


class Stage(Word):
    """Calls of one kind in a row."""

    name: Literal[
        "sandbox", "sandbox_status", "image", "pull", "create", "start", "stop_container", "stop_sandbox", "hook",
        "resize", "remove", "check", "other",
    ]  # fmt: skip
    start: Time
    duration_seconds: Seconds | None
    calls: list[CallId]


class SyncPass(Word):
    """One SyncPod or SyncTerminatingPod that made calls; one that made none cannot be seen."""

    id: str
    pod: Pod
    kind: Literal["create", "start_container", "restart", "kill_container", "recreate_sandbox", "resize", "terminate"]
    trigger: Literal["config", "pleg", "probe", "timer", "unknown"]
    config_seen: str | None = Field(
        description="When the kubelet first saw the pod, RFC 3339; of a pass that created it."
    )
    config_source: Literal["file", "api", "http"] | None = Field(description="Where it saw it.")
    start: Time
    duration_seconds: Seconds | None
    stages: list[Stage]
    calls: list[CallId]
    outcome: Literal["ok", "failed", "open", "unknown"]
    complete: bool


class Step(Word):
    """One thing the runtime did below the CRI: a call to a shim, or a process it ran."""

    id: str
    kind: Literal["shim", "runc", "cni", "exec"] = Field(
        description="shim: a ttrpc call; runc: the OCI runtime; cni: a CNI plugin; exec: any other process."
    )
    name: str = Field(description="The ttrpc method, runc's command, the plugin's type, or the program.")
    call: CallId | None = Field(description="The CRI call that caused it; null where that is not certain.")
    parent: str | None = Field(description="Id of the step that this one is a part of.")
    start: Time
    duration_seconds: Seconds | None
    pid: int | None = Field(description="The process; of a ttrpc call the shim.")
    exit_code: int | None
    signal: int | None = Field(description="That ended the process.")
    status: str | None = Field(description="gRPC status of a ttrpc call's answer.")
    error: str | None = Field(description="The shim's message, secrets removed.")
    command: str | None = Field(description="Of a CNI plugin: ADD, DEL, CHECK, ...")
    container_id: str | None
    sandbox_id: str | None
    exec_id: str | None
    pod: Pod | None
    container: Container | None


class Evidence(Word):
    """One observation a finding rests on."""

    time: Time | None
    text: str
    call: CallId | None
    step: str | None = Field(description="Id of a step.")


class Finding(Word):
    """A verdict."""

    id: str
    kind: str = Field(description="docs/findings.md lists them.", examples=["runtime_not_reading"])
    severity: Literal["info", "warning", "critical"]
    state: Literal["active", "ended"]
    summary: str = Field(description="One sentence: what is slow or broken, since when, and whose fault it is.")
    start: Time
    end: Time | None
    duration_seconds: Seconds | None
    pods: list[Pod]
    calls: list[CallId]
    evidence: list[Evidence]
    confidence: Literal["high", "medium", "low"]
    completeness: Literal["complete", "incomplete"] = Field(
        description="incomplete: records were lost meanwhile, or a part was not seen."
    )
    unknown: list[str] = Field(description="What cannot be told from here.")
    next_steps: list[str]


class Exit(Word):
    """The end of a container (or sandbox), link by link: who knew of it when, and when it ran again."""

    id: str
    start: Time = Field(description="The first link that was seen.")
    container_id: str
    pod: Pod | None
    container: Container | None
    exit_status: int | None = Field(description="As the runtime tells it: 128 and the signal where one ended it.")
    oom: bool = Field(description="The shim told of a kill for want of memory.")
    died: Time | None = Field(description="The process ended.")
    noticed: Time | None = Field(description="The runtime had read the shim's word of it.")
    handled: Time | None = Field(description="The runtime had deleted the task: its lists show the exit from then on.")
    seen: Time | None = Field(description="The PLEG's ContainerDied.")
    acted: Time | None = Field(description="First call of the pod's worker after that.")
    restarted: Time | None = Field(description="The next attempt's StartContainer was answered.")
    detection_seconds: Seconds | None = Field(description="died to seen.")
    reaction_seconds: Seconds | None = Field(description="seen to acted.")
    restart_seconds: Seconds | None = Field(description="died to restarted.")


class NodeEvent(Word):
    """Something that happened to the node's kubelet, runtime or processes."""

    id: str
    time: Time
    kind: Literal["kubelet_started", "runtime_stopped", "runtime_started", "oom_kill", "clock_step"]
    runtime: str | None = Field(description="Path at which the runtime bound its socket.")
    pid: int | None = Field(description="The kubelet, the runtime, or the killed process.")
    comm: str | None
    pod: Pod | None
    container_id: str | None
    text: str = Field(description="The event in a sentence.")


class Why(Word):
    """The verdict."""

    sentence: str = Field(description="The cause that matters most now; else the last one; else that all is well.")
    state: Literal["trouble", "past_trouble", "quiet"] = Field(
        description="trouble: a finding of warning or above is active; past_trouble: one ended in the window."
    )
    pleg: "Pleg | None"
    findings: list[Finding] = Field(description="Of the window, the most severe active one first.")
    clients: list["Share"] | None = Field(description="Who calls the runtime most; null where only findings are kept.")
    unknown: list[str] = Field(description="What cannot be told.")
    next_steps: list[str]


class Share(Word):
    """What one client, activity, pod or method cost the runtime."""

    name: str
    calls: int = Field(description="That ended in the window.")
    failed: int = Field(description="Of them without status OK.")
    seconds: Seconds = Field(description="Sum of their durations, streams left out.")
    service_seconds: Seconds = Field(description="Sum of the time the runtime worked on them.")
    bytes: int = Field(description="Of requests and answers.")
    calls_share: float = Field(description="0 to 1 of all calls.")
    service_share: float
    bytes_share: float


class Usage(Word):
    """Who calls the runtime, and what it costs."""

    since: Time
    until: Time
    items: list[Share] = Field(description="The costliest first.")


class WaitingFor(Word):
    """The open call a relist waits for."""

    id: CallId
    method: str | None
    age_seconds: Seconds
    stage: Literal["sending", "request_wait", "service", "response_wait"] | None = Field(
        description="request_wait: the runtime has not read it; service: the runtime works; "
        "response_wait: the kubelet has not read the answer."
    )
    pod: Pod | None
    container: Container | None
    sandbox_id: str | None


class PlegState(Word):
    """PLEG health of one kubelet."""

    runtime: str | None
    kubelet_pid: int | None
    healthy: bool | None = Field(description="What the kubelet's own check will say; null before the first relist.")
    age_seconds: Seconds | None = Field(description="Since the start of the last relist whose lists succeeded.")
    seconds_until_unhealthy: float | None = Field(description="180 less the age; negative when it is.")
    last_relist_start: Time | None
    stage: Literal["idle", "list_sandboxes", "list_containers", "inspect", "kubelet"] | None = Field(
        description="kubelet: a relist is under way but waits for no call."
    )
    stage_seconds: Seconds | None
    relist: str | None = Field(description="Id of the running relist.")
    relist_age_seconds: Seconds | None
    waiting_for: WaitingFor | None


class Pleg(PlegState):
    """PLEG health now: of the kubelet nearest to unhealthy, and of each."""

    time: Time
    kubelets: list[PlegState]


class KnownPod(Word):
    """A pod that something in the store names."""

    namespace: str
    name: str
    uid: str
    first_seen: Time
    last_seen: Time


class Calls(Word):
    """A page of calls, newest start first."""

    items: list[Call]
    next: str | None = Field(description="`cursor` of the next page; null on the last.")


class Relists(Word):
    """A page of relists, newest start first."""

    items: list[Relist]
    next: str | None


class PlegEvents(Word):
    """A page of PLEG events, newest first."""

    items: list[PlegEvent]
    next: str | None


class SyncPasses(Word):
    """A page of sync passes, newest start first."""

    items: list[SyncPass]
    next: str | None


class Steps(Word):
    """A page of steps, newest start first."""

    items: list[Step]
    next: str | None


class Findings(Word):
    """A page of findings, newest start first."""

    items: list[Finding]
    next: str | None


class Exits(Word):
    """A page of exits, newest first."""

    items: list[Exit]
    next: str | None


class NodeEvents(Word):
    """A page of node events, newest first."""

    items: list[NodeEvent]
    next: str | None


class Pods(Word):
    """A page of pods, the last met first."""

    items: list[KnownPod]
    next: str | None


class Entry(Word):
    """One row of a pod's timeline."""

    uid: str = Field(description="Of the pod: a name may have been used by several.")
    kind: Literal["call", "relist", "pleg_event", "sync_pass", "step", "finding", "node_event", "exit"]
    item: dict[str, Any] = Field(description="The call, PLEG event, sync pass, step, finding or node event.")


class Timeline(Word):
    """A page of what happened to the pods of one name, newest start first."""

    namespace: str
    name: str
    items: list[Entry]
    next: str | None


Line = tuple[
    Literal["call", "relist", "pleg_event", "sync_pass", "step", "finding", "node_event", "exit"],
    str,
    int,
    int | None,
    str | None,
    str | None,
    str | None,
    int | None,
]


class Overview(Word):
    """A window, a line for each thing in it."""

    now: Time
    total: int = Field(description="Things in the window.")
    thinned: bool = Field(description="There are more than are shown.")
    pods: list[Pod]
    items: list[Line] = Field(
        description="Kind, id, start (Unix microseconds), duration (microseconds, null while open), name (method, "
        "step, kind of finding), status, activity (of a finding its severity, of a step its kind), index into `pods`."
    )


class Recording(Word):
    """What the flight recorder keeps of some minutes."""

    id: str
    time: Time = Field(description="When it was frozen.")
    reasons: list[str]
    begin: Time | None
    end: Time | None = Field(description="null while records are still added.")
    bytes: int


class Recordings(Word):
    """Every recording, the newest first."""

    items: list[Recording]


class Wish(BaseModel):
    """Why the last minutes should be kept."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("asked for", min_length=1, max_length=200)


class PartStep(Word):
    """A step within a bar."""

    kind: Literal["shim", "runc", "cni", "exec"]
    name: str
    start: Time
    duration_seconds: Seconds | None


class Bar(Word):
    """One bar of a pod's start."""

    stage: Literal[
        "seen", "volume", "device", "sandbox", "image", "pull", "create", "start", "hook", "pleg_sight",
        "first_probe_answered",
    ] = Field(description="seen: from the kubelet's first sight of the pod to its sandbox.")  # fmt: skip
    start: Time
    duration_seconds: Seconds | None
    what: str
    status: str | None
    call: CallId | None
    steps: list[PartStep]


class PodStart(Word):
    """The latest start of a pod, from the moment the kubelet saw it to the first success of its probe."""

    uid: str
    start: Time
    duration_seconds: Seconds
    config_source: Literal["file", "api", "http"] | None
    complete: bool
    stages: list[Bar]


class PodStarts(Word):
    """The latest start of each pod of one name."""

    items: list[PodStart]


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What is wrong, and what to do.")
