"""The metrics of an app, by the conventions for messaging where they have a name for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.metrics import Meter
from opentelemetry.util.types import AttributeValue

Attributes = dict[str, AttributeValue]

ERROR_TYPE = "error.type"


class TaskMetrics:
    """Durations of submissions and attempts, and what runs now."""

    def __init__(self, meter: Meter) -> None:
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of submissions to the coordinator",
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Tasks and runs that were submitted",
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of the calls of handlers",
        )
        self._active = meter.create_up_down_counter(
            "rota.tasks.active", unit="{task}", description="Tasks whose handlers run now"
        )

    @contextmanager
    def sending(self, attributes: Attributes, count: int) -> Iterator[Attributes]:
        """Measure a submission; an error's type is added to the attributes by then."""
        began = time.perf_counter()
        try:
            yield attributes
        finally:
            self._sending.record(time.perf_counter() - began, attributes)
            self._sent.add(count, attributes)

    @contextmanager
    def processing(self, attributes: Attributes, count: int) -> Iterator[Attributes]:
        """Measure the call of a handler; otherwise as `sending`."""
        active = dict(attributes)
        self._active.add(count, active)
        began = time.perf_counter()
        try:
            yield attributes
        finally:
            self._processing.record(time.perf_counter() - began, attributes)
            self._active.add(-count, active)
