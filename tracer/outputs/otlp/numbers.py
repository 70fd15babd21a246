"""Numbers: the families of /metrics in OTLP's words, one for one: same names, same attributes, same buckets.

Mapped as the OpenTelemetry specification says ("Prometheus and OpenMetrics Compatibility"), so that a collector that
serves them to Prometheus shows what /metrics shows. A summary without quantiles is a histogram of one bucket, as the
library has no other word for a count and a sum.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

_UNITS = {"seconds": "s", "bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def metrics(families: Iterable[Family], start: int, now: int) -> list[Metric]:
    """Of every family that has samples. `start`: when counting began; both Unix ns."""
    return [_metric(family, start, now) for family in families if family.samples]


def _metric(family: Family, start: int, now: int) -> Metric:
    data: Sum | Gauge | Histogram
    if family.type in ("histogram", "summary"):
        data = Histogram(_distributions(family, start, now), _CUMULATIVE)
    elif family.type == "counter":
        data = Sum(_points(family, start, now), _CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_points(family, start, now))
    return Metric(family.name, family.documentation, _UNITS.get(family.name.rpartition("_")[2], ""), data)


def _points(family: Family, start: int, now: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(dict(sample.labels), start, now, float(sample.value))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def _distributions(family: Family, start: int, now: int) -> list[HistogramDataPoint]:
    sets: dict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
    for sample in family.samples:
        sets[tuple((name, value) for name, value in sample.labels.items() if name != "le")].append(sample)
    return [_distribution(family.name, dict(labels), samples, start, now) for labels, samples in sets.items()]


def _distribution(name: str, labels: dict[str, str], samples: list[Sample], start: int, now: int) -> HistogramDataPoint:
    """Prometheus' buckets count all up to their bound, OTLP's those since the bound before."""
    values = {sample.name.removeprefix(name): sample.value for sample in samples if "le" not in sample.labels}
    buckets = [(float(sample.labels["le"]), int(sample.value)) for sample in samples if "le" in sample.labels]
    count = int(values["_count"])
    cumulated = [0, *(upto for _, upto in buckets)] if buckets else [0, count]
    unknown: Any = None  # the smallest and the largest value, optional in OTLP
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=start,
        time_unix_nano=now,
        count=count,
        sum=values["_sum"],
        bucket_counts=[upto - before for before, upto in pairwise(cumulated)],
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        min=unknown,
        max=unknown,
    )
