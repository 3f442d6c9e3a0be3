"""A wish for work that stays: granted again and again, as long as its worker is connected.

A long poll is one wish and one answer. A worker whose connection stays open has one wish that
lasts: as many tasks as it has room for. It waits with the writer beside all other calls for work,
so the transaction that brings work chooses among them by score. What it is granted is handed on;
the rest of the wish waits on from that very transaction, or, if there may be more for it, goes
before the next. How much room there is may change while it waits.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from rota.core.events import LeaseWork
from rota.core.replies import Granted
from rota.engine.entries import Entry
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound

log = structlog.get_logger("rota.engine")

TROUBLE_PAUSE_S = 1.0  # before work is asked for again, when the store could not be written


class StandingCall:
    """Belongs to the event loop. Nothing is asked for before the first `ask`."""

    def __init__(
        self,
        enter: Callable[[int], Entry],
        *,
        take_back: Callable[[Entry, object], None],
        on_granted: Callable[[Granted], int],
        on_ended: Callable[[RotaError], None],
    ) -> None:
        """`on_granted` answers for how many more there is room; `on_ended` says who refused."""
        self._enter = enter
        self._take_back = take_back
        self._on_granted = on_granted
        self._on_ended = on_ended
        # Those that wait, with what each is for. As a rule it is one; a second is made when there
        # is more room while the first may be in the middle of being carried out.
        self._waiting: dict[Entry, int] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._is_over = False

    def ask(self, most: int) -> None:
        """There is room for so many now."""
        if self._is_over or self._pause is not None:
            return
        more = most - sum(self._waiting.values())
        for entry in reversed(self._waiting):
            if more < 0:
                more += self._lower(entry, by=-more)
            elif more > 0 and entry.is_parked:
                # It waits because there is nothing for it, so it need not be asked for anew.
                self._set(entry, self._waiting[entry] + more)
                return
        if more > 0:
            self._enter_anew(more)

    def withdraw(self) -> None:
        """The worker is gone; what is granted to it all the same goes back."""
        self._is_over = True
        for entry in list(self._waiting):
            self._retire(entry)
        if self._pause is not None:
            self._pause.cancel()

    def _lower(self, entry: Entry, *, by: int) -> int:
        """Ask for less, as far as this one goes; the answer is by how much."""
        lowered = min(by, self._waiting[entry])
        left = self._waiting[entry] - lowered
        if left:
            self._set(entry, left)
        else:
            self._retire(entry)
        return lowered

    def _set(self, entry: Entry, most: int) -> None:
        assert isinstance(entry.event, LeaseWork)
        entry.event = msgspec.structs.replace(entry.event, most=most)
        self._waiting[entry] = most

    def _retire(self, entry: Entry) -> None:
        del self._waiting[entry]
        entry.is_gone = True
        entry.future.cancel()

    def _enter_anew(self, most: int) -> None:
        try:
            entry = self._enter(most)
        except RotaError:
            return  # the coordinator has stopped, and so will whoever is connected to it
        self._wait(entry, most)

    def _wait(self, entry: Entry, most: int) -> None:
        """Take the answer in the moment it is given: a worker that idles comes first."""
        self._waiting[entry] = most
        entry.on_answered = lambda: self._take(entry)

    def _take(self, entry: Entry) -> None:
        future = entry.future
        error = future.exception()
        if self._waiting.pop(entry, None) is None:
            self._take_back(entry, error or future.result())
        elif error is None:
            granted: Granted = future.result()
            rest, entry.rest = entry.rest, None
            if rest is not None:
                assert isinstance(rest.event, LeaseWork)
                self._wait(rest, rest.event.most)
            if granted.leases:
                self.ask(self._on_granted(granted))
        elif isinstance(error, WorkerNotFound | StaleIncarnation):
            self.withdraw()
            self._on_ended(error)
        else:
            self._try_later(error)

    def _try_later(self, error: BaseException) -> None:
        log.warning("work could not be asked for", problem=str(error))
        if self._pause is None and not self._is_over:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(TROUBLE_PAUSE_S, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self.ask(self._on_granted(Granted([])))
