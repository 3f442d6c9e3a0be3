"""Starts a complete request at once, without waiting for its turn in the event loop.

The loop makes a task, queues it, and starts it in its next round, which takes longer than many
requests do. So a complete request starts at once. If it ends without waiting for anything, it never
had a task. If it waits, a task goes on with it.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Outcome = TypeVar("Outcome")
Work = Coroutine[Any, Any, None]


def start_eagerly(work: Work, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None] | None":
    """Run `work` up to where it first waits; the task that goes on with it, or None: it is done."""
    try:
        first = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_go_on(Begun(work, first)))


async def _go_on(begun: "Begun[None]") -> None:
    await begun


class Begun(Generic[Outcome]):
    """Work that has started and waits for something; to await this is to wait for the same."""

    def __init__(self, work: Coroutine[Any, Any, Outcome], first: Any) -> None:
        self._work = work
        self._first = first

    def __await__(self) -> Generator[Any, Any, Outcome]:
        waited_for = self._first
        while True:
            try:
                try:
                    came = yield waited_for
                except BaseException as error:  # noqa: BLE001 - all of them are the work's business
                    waited_for = self._work.throw(error)
                else:
                    waited_for = self._work.send(came)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
