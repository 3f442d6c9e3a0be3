"""The pytest plugin: a fixture named `rota`, a coordinator in memory for each test that asks.

In pyproject.toml, `rota_apps = ["shop.tasks:app"]` under `[tool.pytest.ini_options]` attaches apps
to it in every test; otherwise a test attaches its own: `rota.attach(app)`.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rota.testing.coordinator import TestCoordinator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rota_apps", "Apps that the rota fixture attaches: MODULE:APP.", type="args")


@pytest.fixture
def rota(pytestconfig: pytest.Config) -> "Iterator[TestCoordinator]":
    """A coordinator in memory: attach an app, act, assert_enqueued, drain, turn the clock."""
    from rota.testing.coordinator import TestCoordinator  # noqa: PLC0415 - only when asked for

    with TestCoordinator() as coordinator:
        coordinator.attach(*(_imported(place) for place in pytestconfig.getini("rota_apps")))
        yield coordinator


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    if not name:
        raise pytest.UsageError(f"rota_apps names apps as MODULE:APP, not {place!r}")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"rota_apps: {place!r} cannot be imported: {error}") from error
