"""The closed lists of label values are complete: as they are where the values come from."""

from tracer import cri, rpc
from tracer.outputs import labels


def test_the_methods_are_the_cris():
    assert set(cri.METHODS) == labels.CRI_METHODS


def test_the_streams_are_the_cris():
    assert cri.STREAMS == labels.STREAMS


def test_the_statuses_are_grpcs():
    assert set(rpc.STATUS) == labels.STATUSES
