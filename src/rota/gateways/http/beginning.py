"""How is a request begun? Where it stands, without waiting for its turn.

A task is made, put in line, and begun when the loop comes round; that takes longer than many
requests do. So a request that is there as a whole is begun at once, and if it ends without having
waited for anything, there never was a task. If it waits, a task goes on with it.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

Work = Coroutine[Any, Any, None]


def begin(work: Work, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None] | None":
    """Run `work` up to where it first waits; the task that goes on with it, or None: it is done."""
    try:
        first = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_go_on(_Begun(work, first)))


async def _go_on(begun: "_Begun") -> None:
    await begun


class _Begun:
    """Work that waits for something already; whoever awaits this waits for the same."""

    def __init__(self, work: Work, first: Any) -> None:
        self._work = work
        self._first = first

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._first
        while True:
            try:
                try:
                    came = yield waited_for
                except BaseException as error:  # noqa: BLE001 - all of them are the work's business
                    waited_for = self._work.throw(error)
                else:
                    waited_for = self._work.send(came)
            except StopIteration:
                return


def is_brisk(app: Any, scope: Any) -> bool:
    """Whether an application lets a request be begun like this."""
    asked = getattr(app, "is_brisk", None)
    return asked is not None and asked(scope)
