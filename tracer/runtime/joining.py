"""Joining: which CRI call is behind a step. Only when one call alone can be; anything else stays unjoined.

A step mostly states a container's or a sandbox's id, and so does the call. Two ids are known only with a call's answer:
those of what RunPodSandbox and CreateContainer create. An id that nothing knew before is theirs when just one such call
is under way (or when a plugin's environment names the pod), and the answer confirms it or takes it back.

Commands in a container (ExecSync) have ids of their own that no CRI message states: the first step of one is a call's
when just one ExecSync of the container was without one. If several were, the first to be answered has the one that was
cleaned up by then.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from tracer.facts import CriCall
from tracer.identity import Identity
from tracer.runtime.causes import BIRTHS, SANDBOX_METHODS, Cause, may_cause, may_give_birth
from tracer.runtime.step import Step

MAX_SUBJECTS = 8192
"""Containers and sandboxes remembered; the largest nodes have some hundreds at a time."""

MAX_STEPS = 256
"""Steps remembered of each of them that may still be joined; a command in a container has about fifteen."""

MAX_SESSIONS = 64
"""Commands remembered of each container."""

MAX_CAUSES = 4096
"""Calls remembered; those that change something last seconds and are a few hundred at a time."""

MAX_OF_CALL = 512
"""Steps kept of one call: an ExecSync has some fifteen, a StopPodSandbox ten for each container."""

MAX_STRAYS = 1024
"""Steps without an id remembered: plugins in captures without an environment, unpigz, pinns."""

KEEP_NS = 60_000_000_000
"""Calls and their steps are kept for so long after they were over: late names come with the next lists."""

STREAMING_NS = 60_000_000_000
"""A client may use the URL that Exec answered for a minute (containerd's `streaming/request_cache.go:cacheTTL`)."""


_WITH_STRAYS = SANDBOX_METHODS | {"PullImage"}


@dataclass(slots=True)
class JoinStats:
    """`joined_late`: when the step was over; `taken_back`: a call known later could have caused it as well."""

    joined: int = 0
    joined_late: int = 0
    taken_back: int = 0
    evicted: int = 0


@dataclass(slots=True, eq=False)
class _Session:
    """One command run in a container."""

    key: str
    start: int
    steps: list[Step] = field(default_factory=list)
    cause: Cause | None = None
    exit_status: int | None = None
    over: int | None = None  # when it was cleaned up


@dataclass(slots=True)
class _Subject:
    """A container or a sandbox."""

    causes: list[Cause] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    sessions: OrderedDict[str, _Session] = field(default_factory=OrderedDict)
    streaming: list[int] = field(default_factory=list)  # when Exec was answered, of those whose command did not run yet


class Joining:
    """Add steps and calls; each returns the steps whose call changed."""

    def __init__(self, identity: Identity) -> None:
        self.stats = JoinStats()
        self._identity = identity
        self._subjects: OrderedDict[str, _Subject] = OrderedDict()
        self._causes: OrderedDict[str, Cause] = OrderedDict()  # by call id
        self._unborn: dict[str, Cause] = {}  # those of them that create something, and are under way
        self._strays: list[Step] = []
        self._of_call: dict[str, list[Step]] = {}

    def steps_of(self, call: CriCall) -> list[Step]:
        """The call's steps so far, those within others included."""
        return list(self._of_call.get(call.id, ()))

    # steps

    def add(self, step: Step, *, pod_uid: str | None = None) -> list[Step]:
        """A step that lies in no other and belongs to no command. `pod_uid`: whose sandbox it is about."""
        changed: list[Step] = []
        if step.subject is None:
            self._strays.append(step)
            if len(self._strays) > MAX_STRAYS:
                self.stats.evicted += 1
                del self._strays[0]
            self._claim_stray(step, changed)
            return changed
        subject = self._subject(step.subject)
        if pod_uid is not None and not subject.causes:
            self._born_of_pod(step, pod_uid, subject)
        subject.steps.append(step)
        if len(subject.steps) > MAX_STEPS:
            self.stats.evicted += 1
            del subject.steps[0]
        self._claim(step, subject, changed)
        return changed

    def add_in_session(self, step: Step, key: str, *, first: bool) -> list[Step]:
        """A step of the command `key` in the container `step.subject`; `first`: the command begins with it."""
        changed: list[Step] = []
        if step.subject is None:
            return changed
        subject = self._subject(step.subject)
        session = subject.sessions.get(key)
        if session is None:
            if not first:
                return changed  # older than the tracer
            session = subject.sessions[key] = _Session(key, step.start)
            self._room(subject)
            self._assign(subject, session, changed)
        session.steps.append(step)
        if session.cause is not None:
            self._join(step, session.cause.call, changed)
        return changed

    def over(self, container_id: str, key: str, time: int, exit_status: int | None) -> None:
        """The command was cleaned up, or its process ended."""
        subject = self._subjects.get(container_id)
        session = subject.sessions.get(key) if subject is not None else None
        if session is not None:
            session.over = time
            session.exit_status = exit_status

    def add_child(self, step: Step, parent: Step) -> list[Step]:
        """A step within another has its call."""
        changed: list[Step] = []
        step.parent = parent.id
        parent.children.append(step)
        if parent.call is not None:
            self._join(step, parent.call, changed)
        return changed

    def again(self, step: Step) -> list[Step]:
        """Look once more at an unjoined step: a stamp of its call may have come."""
        changed: list[Step] = []
        if step.subject is None:
            self._claim_stray(step, changed)
        elif step.parent is None and (subject := self._subjects.get(step.subject)) is not None:
            for session in subject.sessions.values():
                if session.cause is None and step in session.steps:
                    self._assign(subject, session, changed)
                    return changed
            if step in subject.steps:
                self._claim(step, subject, changed)
        return changed

    def about(self, step: Step, subject: str) -> list[Step]:
        """A step without an id turns out to be about `subject`."""
        if step in self._strays:
            self._strays.remove(step)
        step.subject = subject
        return self.add(step)

    # calls

    def began(self, call: CriCall) -> list[Step]:
        """What a call of `CAUSES` asks for is known; it may be over by now."""
        changed: list[Step] = []
        if call.id not in self._causes:
            cause = self._causes[call.id] = Cause(call)
            if call.method in BIRTHS and call.rpc.end is None:
                self._unborn[call.id] = cause
            if len(self._causes) > MAX_CAUSES:
                self._forget(next(iter(self._causes)))
                self.stats.evicted += 1
            self._name(cause, changed)
            if call.rpc.end is not None and call.method in _WITH_STRAYS:
                for step in self._strays:
                    if cause.covers(step.start):
                        self._claim_stray(step, changed)
        return changed

    def streams(self, call: CriCall) -> None:
        """Exec was answered: its client may run a command in the container any time now."""
        if call.container_id is not None and call.rpc.end is not None:
            streaming = self._subject(call.container_id).streaming
            streaming.append(call.rpc.end)
            del streaming[:-MAX_SESSIONS]

    def answered(self, call: CriCall) -> list[Step]:
        """An answer is there: it may state the id of what the call created."""
        changed: list[Step] = []
        cause = self._causes.get(call.id)
        if cause is None:
            return changed
        created = None
        if call.method == "RunPodSandbox":
            created = call.sandbox_id
        elif call.method == "CreateContainer":
            created = call.container_id
        if created is not None and (created != cause.born or cause.guessed):
            guess = cause.born
            cause.born, cause.guessed = created, False
            if guess is not None and guess != created:
                self._take_back(cause, guess, changed)
            self._name(cause, changed)
        return changed

    def ended(self, call: CriCall) -> list[Step]:
        """The call is over, after `answered`."""
        changed: list[Step] = []
        self._unborn.pop(call.id, None)
        cause = self._causes.get(call.id)
        if cause is None:
            return changed
        for each in cause.ids:
            subject = self._subjects.get(each)
            if subject is None:
                continue
            if call.method == "ExecSync":
                self._settle(subject, cause, changed)
            for step in subject.steps:
                if step.call is None and cause.covers(step.start):
                    self._claim(step, subject, changed)
        return changed

    def unnamed(self, call: CriCall) -> list[Step]:
        """The call lost the method that it was thought to have."""
        changed: list[Step] = []
        if call.id in self._causes:
            for step in self.steps_of(call):
                self._part(step, changed)
            self._forget(call.id)
        return changed

    def forget(self, now: int) -> None:
        """Let go of what was over long before `now`."""
        for call_id, cause in list(self._causes.items()):
            end = cause.call.rpc.end
            if end is not None and now - end > KEEP_NS:
                self._forget(call_id)
        old = now - KEEP_NS
        self._strays = [step for step in self._strays if step.start > old]
        for name, subject in list(self._subjects.items()):
            subject.steps = [step for step in subject.steps if step.end is None or step.end > old]
            subject.streaming = [time for time in subject.streaming if time > now - STREAMING_NS]
            for key, session in list(subject.sessions.items()):
                if session.over is not None and session.over < old:
                    del subject.sessions[key]
            if not subject.causes and not subject.steps and not subject.sessions and not subject.streaming:
                del self._subjects[name]

    # ids

    def _subject(self, name: str) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = _Subject()
            if len(self._subjects) > MAX_SUBJECTS:
                self._subjects.popitem(last=False)
                self.stats.evicted += 1
        else:
            self._subjects.move_to_end(name)
        return subject

    def _room(self, subject: _Subject) -> None:
        if len(subject.sessions) > MAX_SESSIONS:
            subject.sessions.popitem(last=False)
            self.stats.evicted += 1

    def _name(self, cause: Cause, changed: list[Step]) -> None:
        """The ids of a call's subjects are known: its steps may have come before."""
        for each in cause.ids:
            subject = self._subject(each)
            if cause not in subject.causes:
                subject.causes.append(cause)
            for session in list(subject.sessions.values()):
                if session.cause is None:
                    self._assign(subject, session, changed)
            for step in list(subject.steps):
                if cause.covers(step.start):
                    self._claim(step, subject, changed)

    def _born_of_pod(self, step: Step, pod_uid: str, subject: _Subject) -> None:
        found = [
            cause
            for cause in self._unborn.values()
            if cause.born is None
            and cause.call.method == "RunPodSandbox"
            and cause.call.pod is not None
            and cause.call.pod.uid == pod_uid
            and cause.covers(step.start)
        ]
        if len(found) == 1:
            self._give(found[0], step, subject)

    def _give(self, cause: Cause, step: Step, subject: _Subject) -> None:
        cause.born, cause.guessed = step.subject, True
        subject.causes.append(cause)

    def _take_back(self, cause: Cause, guess: str, changed: list[Step]) -> None:
        """The id that was taken for what the call creates was another's."""
        wrong = self._subjects.get(guess)
        if wrong is None:
            return
        if cause in wrong.causes:
            wrong.causes.remove(cause)
        for step in wrong.steps:
            if step.call is cause.call:
                self.stats.taken_back += 1
                self._part(step, changed)
                self._claim(step, wrong, changed)

    def _forget(self, call_id: str) -> None:
        cause = self._causes.pop(call_id)
        self._unborn.pop(call_id, None)
        self._of_call.pop(call_id, None)
        for each in cause.ids:
            subject = self._subjects.get(each)
            if subject is not None and cause in subject.causes:
                subject.causes.remove(cause)

    # claims

    def _claim(self, step: Step, subject: _Subject, changed: list[Step]) -> None:
        methods = may_cause(step)
        causes = subject.causes
        known = self._identity.containers.get(step.subject or "")
        if known is not None and (sandbox := self._subjects.get(known.sandbox_id)) is not None:
            causes = [*causes, *(cause for cause in sandbox.causes if cause.call.method in SANDBOX_METHODS)]
        found = [cause for cause in causes if cause.call.method in methods and cause.covers(step.start)]
        if not found and not causes and known is None and step.subject not in self._identity.sandboxes:
            found = self._births(step)
            if len(found) == 1:
                self._give(found[0], step, subject)
        self._decide(step, found, changed)

    def _births(self, step: Step) -> list[Cause]:
        """Calls that may create what the step is about; two are enough to know that it is not certain."""
        return _some(
            cause
            for cause in self._unborn.values()
            if cause.born is None and may_give_birth(cause.call.method, step) and cause.covers(step.start)
        )

    def _claim_stray(self, step: Step, changed: list[Step]) -> None:
        methods = may_cause(step)
        if methods:
            causes = self._causes.values()
            found = _some(cause for cause in causes if cause.call.method in methods and cause.covers(step.start))
            self._decide(step, found, changed)

    def _decide(self, step: Step, found: list[Cause], changed: list[Step]) -> None:
        if len(found) == 1:
            if step.call is not found[0].call:
                self._join(step, found[0].call, changed)
        elif found and step.call is not None:
            self.stats.taken_back += 1
            self._part(step, changed)

    def _join(self, step: Step, call: CriCall, changed: list[Step]) -> None:
        if step.call is not None:
            self._part(step, changed)
        step.call = call
        self.stats.joined += 1
        self.stats.joined_late += step.end is not None
        steps = self._of_call.setdefault(call.id, [])
        if len(steps) < MAX_OF_CALL:
            steps.append(step)
        else:
            self.stats.evicted += 1
        if step not in changed:
            changed.append(step)
        for child in step.children:
            self._join(child, call, changed)

    def _part(self, step: Step, changed: list[Step]) -> None:
        if step.call is not None:
            steps = self._of_call.get(step.call.id)
            if steps is not None and step in steps:
                steps.remove(step)
            step.call = None
            if step not in changed:
                changed.append(step)
        for child in step.children:
            self._part(child, changed)

    # commands in a container

    def _assign(self, subject: _Subject, session: _Session, changed: list[Step]) -> None:
        """A command begins: whose it is."""
        found = [
            cause
            for cause in subject.causes
            if cause.call.method == "ExecSync" and cause.session is None and cause.covers(session.start)
        ]
        streaming = [time for time in subject.streaming if 0 <= session.start - time <= STREAMING_NS]
        if len(found) == 1 and not streaming:
            self._own(session, found[0], changed)
        elif streaming and not found:
            subject.streaming.remove(streaming[0])

    def _settle(self, subject: _Subject, cause: Cause, changed: list[Step]) -> None:
        """An ExecSync was answered: its command was cleaned up before that."""
        call = cause.call
        answered = call.rpc.answered
        if cause.session is not None or call.rpc.status != "OK" or answered is None:
            return
        found = [
            session
            for session in subject.sessions.values()
            if session.cause is None
            and cause.covers(session.start)
            and session.over is not None
            and session.over <= answered
            and (session.exit_status is None or call.exit_code is None or session.exit_status == call.exit_code)
        ]
        if len(found) == 1:
            self._own(found[0], cause, changed)
            for session in list(subject.sessions.values()):
                if session.cause is None:
                    self._assign(subject, session, changed)

    def _own(self, session: _Session, cause: Cause, changed: list[Step]) -> None:
        session.cause, cause.session = cause, session.key
        for step in session.steps:
            self._join(step, cause.call, changed)


def _some(found: Iterator[Cause]) -> list[Cause]:
    """At most two of them."""
    return list(islice(found, 2))
