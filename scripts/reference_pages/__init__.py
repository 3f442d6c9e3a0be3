"""The pages of the reference, each made by a module of its own."""

from collections.abc import Callable
from pathlib import Path

from wrap import wrapped

from reference_pages import (
    cli,
    errors,
    events,
    http,
    limits,
    metrics,
    settings,
    sockets,
    states,
    workflows,
)

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "states.md": states.page,
    "events.md": events.page,
    "errors.md": errors.page,
    "settings.md": settings.page,
    "limits.md": limits.page,
    "http.md": http.page,
    "websocket.md": sockets.page,
    "cli.md": cli.page,
    "metrics.md": metrics.page,
    "workflow-definition.md": workflows.page,
}

NOTE = "<!-- Made from the code by scripts/reference.py: change the code, then run `make docs`. -->"


def page_text(name: str) -> str:
    return wrapped(f"{NOTE}\n\n{PAGES[name]().strip()}\n")
