"""Tallies: what is counted between scrapes. Plain numbers that one thread changes, made into families when asked.

They stand in for prometheus_client's own instruments, which cost seven times as much a sample and double the series
(`_created`), and they keep a bound: beyond `limit` sets of label values the first label (the one that a peer could
choose) becomes "other".
"""

from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, SummaryMetricFamily

from tracer.outputs.labels import OTHER

Labels = tuple[str, ...]


class Tally:
    """Numbers by label values; `width` is how many each set of label values has."""

    def __init__(self, name: str, text: str, labels: Labels = (), *, limit: int = 1, width: int = 1) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.limit = limit
        self._width = width
        self._slots: dict[Labels, list[float]] = {}

    def _slot(self, values: Labels) -> list[float]:
        slot = self._slots.get(values)
        if slot is not None:
            return slot
        if len(self._slots) >= self.limit and self.labels:
            values = (OTHER, *values[1:])
        return self._slots.setdefault(values, [0] * self._width)


class Counter(Tally):
    """Counts; `known`: label values that are shown from the start as 0, so that their first increase is seen."""

    def __init__(
        self, name: str, text: str, labels: Labels = (), *, limit: int = 1, known: Iterable[Labels] = ()
    ) -> None:
        super().__init__(name, text, labels, limit=limit)
        for values in known:
            self._slot(values)

    def add(self, values: Labels) -> None:
        self._slot(values)[0] += 1

    def known(self) -> set[str]:
        """Every value of the first label."""
        return {values[0] for values in self._slots}

    def family(self) -> CounterMetricFamily:
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for values, slot in self._slots.items():
            family.add_metric(values, slot[0])
        return family


class Summary(Tally):
    """How many and how much in all."""

    def __init__(self, name: str, text: str, labels: Labels = (), *, limit: int = 1) -> None:
        super().__init__(name, text, labels, limit=limit, width=2)

    def observe(self, values: Labels, value: float) -> None:
        slot = self._slot(values)
        slot[0] += 1
        slot[1] += value

    def family(self) -> SummaryMetricFamily:
        family = SummaryMetricFamily(self.name, self.text, labels=self.labels)
        for values, (count, total) in self._slots.items():
            family.add_metric(values, int(count), total)
        return family


class Histogram(Tally):
    """How many up to each of `bounds` (ascending), how many in all, and how much."""

    def __init__(self, name: str, text: str, labels: Labels = (), *, bounds: tuple[float, ...], limit: int = 1) -> None:
        super().__init__(name, text, labels, limit=limit, width=len(bounds) + 2)
        self.bounds = bounds

    def observe(self, values: Labels, value: float) -> None:
        slot = self._slot(values)
        slot[bisect_left(self.bounds, value)] += 1  # `le` includes its bound
        slot[-1] += value

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for values, slot in self._slots.items():
            count = 0.0
            buckets = []
            for bound, more in zip((*map(str, map(float, self.bounds)), "+Inf"), slot, strict=False):
                count += more
                buckets.append((bound, count))
            family.add_metric(values, buckets, slot[-1])
        return family
