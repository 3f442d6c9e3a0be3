"""The middleware on the pages does what the pages say."""

from pathlib import Path
from typing import Any

from rota.testing import TestCoordinator
from tests.docs.pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"


def executed(page: Path, *wanted: int) -> dict[str, Any]:
    """The names that Python blocks of a page define."""
    names: dict[str, Any] = {"__name__": "page"}
    for number in wanted:
        exec(blocks(page, "python")[number].text, names)
    return names


def test_the_middleware_of_the_page_sends_the_tenant_and_times_the_handler() -> None:
    page = HOW_TO / "middleware.md"
    names = executed(page, 0)

    with TestCoordinator() as coordinator:
        coordinator.attach(names["app"])
        handle = names["whose"].enqueue()
        exec(blocks(page, "python")[1].text, names)
        coordinator.drain()

        assert handle.result() == "acme"
        assert names["handle"].result() == "globex"
    assert names["tenants"].seconds["whose"] >= 0
