"""Rhythm: which of the lists of all sandboxes is a relist's.

Several runs list them (garbage collection, stats, image detection), but only the PLEG does so a second after its last
relist ended, and only it goes on with all containers at once. So a list that may continue another run is tentative
until the next call: it is taken from that run, or given back to it.
"""

from tracer.facts import CriCall
from tracer.kubelet.evented import EventStream
from tracer.kubelet.relists import RELIST_PERIOD_NS, Records, RelistRun
from tracer.kubelet.runs import NEXT_NS, Run, unfiltered
from tracer.kubelet.telling import Changed, Telling
from tracer.kubelet.workers import Workers


class Rhythm:
    """The relists of one kubelet among its `runs`, which it adds to and takes from."""

    def __init__(self, runs: list[Run], telling: Telling, workers: Workers, *, fresh: bool) -> None:
        self.records = Records(known=fresh)
        self.stream = EventStream()
        self.latest: RelistRun | None = None  # of all pods
        self.former: RelistRun | None = None  # the one before it
        self.ended: int | None = None  # when the latest one that is over ended
        self.listed: int | None = None  # start of the latest whose lists succeeded
        self._runs = runs
        self._telling = telling
        self._workers = workers

    @property
    def filters(self) -> bool | None:
        """Whether relists list sandboxes with a filter, though an empty one: from 1.36 on. None: not known."""
        listed = self.latest.relist.list_sandboxes if self.latest is not None else None
        return None if listed is None or not listed.rpc.complete else not unfiltered(listed)

    def begin(self, call: CriCall, waiting: Run | None, changed: Changed) -> RelistRun | None:
        """A relist of all pods that begins with `call`, if one can now; `waiting`: who else may have sent it."""
        if not self._due(call, changed):
            return None
        run = RelistRun(call, self.records, tentative=waiting)
        if waiting is None:
            self.confirm(run, changed)
            changed.relists.append(run.relist)
        self._runs.append(run)
        return run

    def _due(self, call: CriCall, changed: Changed) -> bool:
        """Whether none runs, and the last ended a period ago."""
        last, time = self.latest, call.rpc.start
        if last is None:
            return True
        if self.filters is unfiltered(call):
            return False
        if not last.over:
            owed = self.stream.relist_owed and last.listed_at is not None
            if last.open or last.ready is None or (time - last.ready < RELIST_PERIOD_NS and not owed):
                return False
            last.supersede(last.ready)
            self.done(last, changed)
            self._runs.remove(last)
        return self.ended is None or time - self.ended >= RELIST_PERIOD_NS or self.stream.relist_owed

    def confirm(self, run: RelistRun, changed: Changed) -> None:
        """It is a relist, and the latest one; lists that might have been one at the same time are others'."""
        for other in self.tentative():
            if other is not run and other.ready is not None:
                self.give_back(other, changed)
            elif other is not run:
                other.rivalled = True
        if self.latest is not None:
            run.relist.interval = run.relist.start - self.latest.relist.start
        self.stream.relisted()
        self.former, self.latest = self.latest, run

    def untangle(self, call: CriCall, changed: Changed) -> None:
        """A sandbox list taken for a relist's, with a request behind it that only the other run makes: it was that's.

        A stats request, or the stop of a sandbox that the list shows as not ready: garbage collection.
        """
        for run in self.tentative():
            listed = run.calls[0].sandboxes or ()
            dead = any(item.id == call.sandbox_id and not item.ready for item in listed)
            if run.ready is not None and (call.method != "StopPodSandbox" or dead):
                self.give_back(run, changed)

    def withdraw(self, run: Run) -> None:
        """It never was."""
        if run in self._runs:
            self._runs.remove(run)
        if self.latest is run:
            self.latest = self.former

    def tentative(self) -> list[RelistRun]:
        """Runs of which only the next call tells."""
        return [run for run in self._runs if isinstance(run, RelistRun) and run.tentative]

    def give_back(self, run: RelistRun, changed: Changed) -> None:
        """Its list was the other run's."""
        other, first = run.tentative, run.calls[0]
        assert other is not None
        assert run.ready is not None
        self._runs.remove(run)
        other.sent(first)
        other.done(first, run.ready)
        if not other.late:
            self._telling.show(changed.calls, first, other.kind_of(first), other.id)

    def expire(self, now: int, changed: Changed) -> list[Run]:
        """Runs that wait for what a tentative relist has; lists that nothing followed are theirs from now on."""
        held: list[Run] = []
        for run in self.tentative():
            if run.ready is not None and now - run.ready > NEXT_NS:
                self.give_back(run, changed)
            elif run.tentative is not None:
                held.append(run.tentative)
        return held

    def done(self, run: RelistRun, changed: Changed) -> None:
        """A call of `run` is over, or `run` is: what that tells."""
        relist = run.relist
        if run.listed_at is not None and not run.noted:
            run.noted = True
            if run.uid is None:
                self.listed = relist.start
            self._workers.listed(relist.start, run.listed_at, run.uid, changed.passes)
        new = relist.events[run.given :]
        run.given = len(relist.events)
        changed.events += new
        self._workers.told(new)
        if run.over:
            if relist.kind == "generic":
                self.ended = relist.end
            changed.relists.append(relist)
