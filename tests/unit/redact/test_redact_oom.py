"""Processes killed for want of memory hold no secret."""

from tracer.records import OomKill
from tracer.redact.redactor import Redactor


def test_a_killed_process_passes_at_once_and_as_it_came():
    killed = OomKill(1, 7, "hog", 1000, "/kubepods.slice/cri-containerd-1.scope", 4096, None, 0)
    assert Redactor().feed(killed) == [killed]
