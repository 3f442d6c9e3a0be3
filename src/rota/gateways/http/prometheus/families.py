"""Metric families in Prometheus' terms.

A table row has the name of a family without `rota_`, its help text, and the function that reads its
value. A value of None is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Samples = Iterable[tuple[tuple[str, ...], float]]  # the values of the labels, and the figure
Source = TypeVar("Source")
Row = tuple[str, str, Callable[[Source], float | None]]
LabelledRow = tuple[str, str, str, Callable[[Source], Mapping[str, int]]]  # with the label's name
Labels = tuple[str, ...]
Labelled = Iterable[tuple[Labels, Source]]  # the values of the labels, and what is observed


def counter(name: str, text: str, labels: Labels, samples: Samples) -> Metric:
    family = CounterMetricFamily(f"rota_{name}", text, labels=labels)
    for values, count in samples:
        family.add_metric(values, count)
    return family


def gauge(name: str, text: str, labels: Labels, samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"rota_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counters(
    rows: Iterable[Row[Source]], labels: Labels, observed: Labelled[Source]
) -> Iterator[Metric]:
    """A counter for each row, with a sample for each thing that was observed."""
    for name, text, read in rows:
        yield counter(name, text, labels, _samples(read, observed))


def gauges(
    rows: Iterable[Row[Source]], labels: Labels, observed: Labelled[Source]
) -> Iterator[Metric]:
    """A gauge for each row, with a sample for each thing that was observed."""
    for name, text, read in rows:
        yield gauge(name, text, labels, _samples(read, observed))


def counters_by_label(rows: Iterable[LabelledRow[Source]], source: Source) -> Iterator[Metric]:
    """A counter for each row, with a sample for each value of its label."""
    for name, text, label, read in rows:
        yield counter(name, text, (label,), [((one,), n) for one, n in read(source).items()])


def _samples(
    read: Callable[[Source], float | None], observed: Labelled[Source]
) -> list[tuple[Labels, float]]:
    return [(labels, value) for labels, one in observed if (value := read(one)) is not None]
