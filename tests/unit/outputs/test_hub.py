"""Rows as they come, to whoever listens."""

import asyncio
import json

import pytest

from tests.unit.store.sample import call, relist
from tracer.outputs.hub import MAX_LISTENERS, MAX_WAITING, Busy, Hub


def listening(hub, *kinds):
    return hub.listen(frozenset(kinds or ("call", "relist")))


def test_a_listener_gets_the_rows_of_its_kinds_in_order_as_events():
    async def story():
        hub = Hub()
        events = listening(hub, "call")
        assert (await anext(events)).startswith(b"retry")
        hub.feed([call("a"), relist("r"), call("b")])
        text = await anext(events)
        await events.aclose()
        return text

    events = [each for each in asyncio.run(story()).split(b"\n\n") if each]
    assert [each.split(b"\n")[0] for each in events] == [b"event: call"] * 2
    assert [json.loads(each.split(b"data: ")[1])["id"] for each in events] == ["a", "b"]


def test_one_that_does_not_keep_up_is_told_how_many_it_lost_and_costs_no_memory():
    async def story():
        hub = Hub()
        events = listening(hub)
        await anext(events)
        hub.feed([call("a")] * (MAX_WAITING + 5))
        first = await anext(events)
        waiting = len(hub._listeners[0].waiting)
        await events.aclose()
        return first, waiting

    first, waiting = asyncio.run(story())
    assert first == b"event: lost\ndata: 5\n\n"
    assert waiting <= MAX_WAITING


def test_no_more_than_so_many_listen_and_one_that_leaves_makes_room():
    async def story():
        hub = Hub()
        open_ = [listening(hub) for _ in range(MAX_LISTENERS)]
        for events in open_:
            await anext(events)
        with pytest.raises(Busy):
            await anext(listening(hub))
        await open_.pop().aclose()
        more = listening(hub)
        await anext(more)
        for events in (*open_, more):
            await events.aclose()
        return hub._listeners

    assert asyncio.run(story()) == []


def test_nobody_listening_costs_nothing():
    hub = Hub()
    hub.feed(iter(()))
    assert hub._listeners == []
