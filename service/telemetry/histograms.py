"""Histograms of durations in plain lists, cheap enough for every request.

The histogram of `prometheus_client` takes a lock for each observation, and three times as long. These belong to one
event loop and need no lock; the library only writes them out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily

__all__ = ["BOUNDS", "Histogram", "NodeTimings", "histograms"]

# seconds, each the upper bound of a bucket; from one small event in memory to a client that sends for seconds
BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABEL_VALUES = (*map(str, BOUNDS), "+Inf")  # as values of the label `le`
_OTHER = "other"  # a call of the store that none of its operations is


class Histogram:
    """Durations by size, in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)  # the last one: above every bound
        self.sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a duration of so many things. O(log buckets), about 0.2 us."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.sum += seconds * times

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return the buckets of Prometheus: each bound, and the number of times up to it."""
        total, out = 0, []
        for bound, count in zip(_LABEL_VALUES, self.counts, strict=True):
            total += count
            out.append((bound, float(total)))
        return out


def histograms(
    name: str, documentation: str, labels: Sequence[str], histograms: Iterable[tuple[Sequence[str], Histogram]]
) -> HistogramMetricFamily:
    """Return a family with a histogram for each combination of labels, without the empty ones."""
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, item in histograms:
        if item.count:
            family.add_metric(values, item.buckets(), item.sum)
    return family


class NodeTimings:
    """The durations of a node below its requests: calls of the store, and applied records."""

    def __init__(self, operations: Iterable[str]) -> None:
        """`operations`: the store's."""
        self.store = {name: Histogram() for name in (*operations, _OTHER)}  # by operation
        self.store_errors = dict.fromkeys(self.store, 0)  # calls that the store did not answer, by operation
        self.apply = Histogram()
        self.failures = 0  # of those calls, in all
        self.rewound = 0  # logs of which the store had lost records that were applied here

    def called(self, operation: str, began: float) -> None:
        """Count a call of the store that began at that `perf_counter()` and has just ended."""
        self.store[operation if operation in self.store else _OTHER].observe(perf_counter() - began)

    def failed(self, operation: str) -> None:
        """Count a failed call of the store."""
        self.failures += 1
        self.store_errors[operation if operation in self.store else _OTHER] += 1
