"""The agent goes on whatever its own code does wrong."""

import os
import time

import pytest

from tests.unit.conversation import Conversation
from tracer.agent import Agent


class Broken:
    """A rule with a mistake in it."""

    kind = "broken"

    def look(self, scene):
        raise ZeroDivisionError


class Handed:
    """A source whose records are handed to it: the kernel's needs root."""

    realtime_offset_ns = 0
    probes = ()
    hidden = ()

    def __init__(self):
        self._read, self._written = os.pipe()
        self._waiting = []

    def hand(self, records):
        self._waiting += records

    def drain(self):
        taken, self._waiting = self._waiting, []
        return taken

    def fileno(self):
        return self._read

    def refresh_realtime_offset(self):
        pass

    def counters(self):
        return {}

    def close(self):
        os.close(self._read)
        os.close(self._written)


@pytest.fixture
def rows():
    return []


@pytest.fixture
def agent(rows, monkeypatch):
    monkeypatch.setattr("tracer.pipeline.rules", lambda: [Broken()])
    running = Agent(Handed(), [rows.extend], inventories=[])
    running.start()
    yield running
    running._pipeline.board._rules = ()
    running.stop()


def within(condition, seconds=10):
    due = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < due
        time.sleep(0.02)


def test_a_rule_that_fails_at_each_look_is_counted_and_tracing_goes_on(agent, rows):
    within(lambda: agent.errors >= 2)
    talk = Conversation(time=time.monotonic_ns()).open()
    talk.call("/runtime.v1.RuntimeService/Status")
    agent.source.hand(talk.records)
    within(lambda: any(row.kind == "call" for row in rows))
    assert agent.health()["tracing"]
    assert agent.counters()["pipeline.errors"] == agent.errors
