"""How does one watch a service? Drawn anew on a terminal, as a line for each change elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from rota.cli.output import is_terminal, note, visible
from rota.errors import Unavailable
from rota.messages.shards import ServiceView
from rota.sdk import service_calls
from rota.sdk.client import Client

POLL_S = 0.5  # how old the picture may be


def watch(client: Client, service: ServiceView) -> None:
    """Show how a service goes on, until somebody ends it."""
    with _display() as draw:
        while True:
            draw(service)
            time.sleep(POLL_S)
            try:
                service = client.run(service_calls.get_service(service.name))
            except Unavailable as error:
                # It may be back in a moment, and has forgotten nothing.
                note(f"no answer: {error.detail}")


@contextmanager
def _display() -> Iterator[Callable[[ServiceView], None]]:
    if not is_terminal(sys.stdout):
        yield Lines().draw
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.service_drawing import drawn, is_coloured  # noqa: PLC0415

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def draw(service: ServiceView) -> None:
            picture = drawn(
                service,
                width=console.width,
                height=console.height,
                is_coloured=is_coloured(console),
            )
            live.update(picture, refresh=True)

        yield draw


class Lines:
    """Says how a service stands, whenever that is something else than before."""

    def __init__(self) -> None:
        self._before = ""

    def draw(self, service: ServiceView) -> None:
        line = (
            f"{visible(service.name)}: generation {service.generation}, {service.shard_count} "
            f"shards, {len(service.members)} members, {service.unowned} unowned, "
            f"{service.moving} moving"
        )
        if line != self._before:
            click.echo(line)
        self._before = line
