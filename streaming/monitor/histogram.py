"""A histogram whose observations have weights, which the library's own lacks."""

import itertools
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client.core import HistogramMetricFamily


class WeightedHistogram:
    """Histogram of one series.

    Args:
        name: name of the metric.
        text: its description.
        bounds: upper bounds of the buckets, ascending; the last bucket has none.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._weights = [0.0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, values: Iterable[float], weight: float) -> None:
        """Count each value as often as the weight says."""
        with self._lock:
            for value in values:
                self._weights[bisect_left(self._bounds, value)] += weight
                self._sum += value * weight

    def family(self) -> HistogramMetricFamily:
        """Return the histogram as a metric."""
        with self._lock:
            totals = list(itertools.accumulate(self._weights))
            buckets = [*zip(map(str, map(float, self._bounds)), totals[:-1], strict=True), ("+Inf", totals[-1])]
            return HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)
