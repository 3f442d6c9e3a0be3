"""How is a figure told to Prometheus?"""

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Samples = Iterable[tuple[tuple[str, ...], float]]  # the values of the labels, and the figure


def single(counts: Mapping[str, int]) -> Samples:
    """The samples of what is counted by one label."""
    return [((label,), count) for label, count in counts.items()]


def counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in samples:
        family.add_metric(values, count)
    return family


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
