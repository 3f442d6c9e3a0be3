"""A task that looks at something again and again, while this coordinator leads."""

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from rota.errors import RotaError


class Poller:
    """Calls `look` and `pause` in turns. A look that fails is logged, and the next one follows."""

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        pause: Callable[[], Awaitable[None]],
        *,
        log: FilteringBoundLogger,
        failure: str,
    ) -> None:
        """`failure` is the event that is logged when a look fails."""
        self._look = look
        self._pause = pause
        self._log = log
        self._failure = failure
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End it, also in the middle of a look."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - it is logged, and the next look follows
                # An error of ours says enough by itself: the store, or the leader, is away.
                is_expected = isinstance(error, RotaError)
                self._log.warning(self._failure, exc_info=None if is_expected else error)
            await self._pause()
