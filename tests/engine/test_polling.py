"""Pollers: a look that fails is logged, and looking goes on."""

import asyncio

import structlog
from structlog.testing import capture_logs

from rota.engine.polling import Poller
from rota.errors import Unavailable

log = structlog.get_logger("rota.tests")
ENOUGH = 3


class Watched:
    """Fails at first, and says when it was looked at often enough."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.looks = 0
        self.is_enough = asyncio.Event()
        self._failure = failure

    async def look(self) -> None:
        self.looks += 1
        if self.looks == ENOUGH:
            self.is_enough.set()
        if self.looks == 1 and self._failure is not None:
            raise self._failure

    async def pause(self) -> None:
        await asyncio.sleep(0)


async def looked_enough(watched: Watched) -> None:
    poller = Poller(watched.look, watched.pause, log=log, failure="watched_unknown")
    poller.start()
    async with asyncio.timeout(10):
        await watched.is_enough.wait()
    await poller.stop()


async def test_a_look_that_fails_is_logged_and_the_next_one_follows() -> None:
    watched = Watched(Unavailable("no leader"))

    with capture_logs() as logged:
        await looked_enough(watched)

    (one,) = logged
    assert (one["event"], one["exc_info"]) == ("watched_unknown", None)


async def test_a_look_that_fails_by_a_mistake_of_ours_is_logged_with_its_trace() -> None:
    mistake = ValueError("a bug")

    with capture_logs() as logged:
        await looked_enough(Watched(mistake))

    (one,) = logged
    assert (one["event"], one["exc_info"]) == ("watched_unknown", mistake)


async def test_a_poller_that_was_stopped_looks_no_more() -> None:
    watched = Watched()

    await looked_enough(watched)
    looks = watched.looks
    for _ in range(10):
        await asyncio.sleep(0)

    assert watched.looks == looks


async def test_a_poller_that_never_started_can_be_stopped() -> None:
    watched = Watched()

    await Poller(watched.look, watched.pause, log=log, failure="watched_unknown").stop()

    assert watched.looks == 0
