from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.compat.celery import Celery
from tests.sdk.serving import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def current_app() -> Iterator[None]:
    """Which app is the current one ends with the test."""
    before = Celery.current
    yield
    Celery.current = before
