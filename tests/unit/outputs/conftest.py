import pytest
from prometheus_client import CollectorRegistry

from tracer.outputs.prometheus import Metrics


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return Metrics(registry)
