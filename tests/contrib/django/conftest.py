"""A worker for the tasks of the project, on a thread of the tests."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django  # type: ignore[import-untyped]  # Django has no types
import pytest

SETTINGS = "tests.contrib.django.site.settings"
PATIENCE_S = 30.0

if os.environ.get("DJANGO_SETTINGS_MODULE") == SETTINGS:  # not in the process of other tests
    django.setup()

if TYPE_CHECKING:
    from rota.contrib.django.backend import RotaBackend
    from rota.contrib.django.worker import DjangoWorker


@pytest.fixture
def backend() -> "RotaBackend":
    from rota.contrib.django.task_api import task_backends  # noqa: PLC0415 - needs settings

    found: Any = task_backends["default"]
    return found  # type: ignore[no-any-return]  # Django has no types


@pytest.fixture(scope="session")
def worker() -> "Iterator[DjangoWorker]":
    from rota.contrib.django.task_api import task_backends  # noqa: PLC0415 - as above
    from rota.contrib.django.worker import DjangoWorker  # noqa: PLC0415 - as above

    backend: Any = task_backends["default"]
    registered = threading.Event()
    one = DjangoWorker(
        backend,
        worker_id="django-worker",
        queues=["default", "mail"],
        say=lambda _: registered.set(),
    )
    with working(one, registered):
        yield one


@contextmanager
def working(worker: "DjangoWorker", registered: threading.Event) -> Iterator[None]:
    """Run a worker on a thread."""
    thread = threading.Thread(target=asyncio.run, args=(worker.worker.arun(),))
    thread.start()
    try:
        assert registered.wait(PATIENCE_S)
        yield
    finally:
        worker.worker.stop()
        thread.join(PATIENCE_S)


@pytest.fixture
def signals() -> Iterator[list[tuple[str, str, str]]]:
    """The name of each signal that is sent, with the id and the status of its result."""
    from rota.contrib.django import task_api  # noqa: PLC0415 - as above

    seen: list[tuple[str, str, str]] = []
    receivers: list[tuple[Any, Any]] = []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def note(task_result: Any, name: str = name, **_: Any) -> None:
            seen.append((name, task_result.id, str(task_result.status)))

        signal = getattr(task_api, name)
        signal.connect(note)
        receivers.append((signal, note))
    yield seen
    for signal, note in receivers:
        signal.disconnect(note)
