"""Delivers reports to the coordinator until each is answered or its session is over.

A report without an answer is sent again: the coordinator recognises what it has. A report that the
coordinator refuses as a whole is sent in halves, until the item that caused the refusal is alone.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from rota.errors import Invalid, RotaError, StaleIncarnation, TooLarge, WorkerNotFound
from rota.sdk.timing import RetryBackoff
from rota.sdk.worker.poller import OnRefused
from rota.sdk.worker.session import WorkerSession

RETRY_MOST_S = 2.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ReportSender(Protocol[Item, Answer]):
    """What makes the reports of one kind."""

    async def send(self, session: WorkerSession, batch: Sequence[Item]) -> Answer:
        """Send a report once."""

    def accept(self, session: WorkerSession, batch: Sequence[Item], answer: Answer) -> None:
        """Take the answer to a report."""

    def refuse(self, item: Item, error: RotaError) -> Item | None:
        """Take the refusal of an item; the item to report in its place, if there is one."""

    def note_delay(self, error: RotaError) -> None:
        """Log that a report has to be sent again."""

    def lose(self, batch: Sequence[Item]) -> None:
        """Drop a report: its session is over."""


class ReportDelivery(Generic[Item, Answer]):
    """Delivers the reports of one sender."""

    def __init__(self, sender: ReportSender[Item, Answer], *, on_refused: OnRefused) -> None:
        self._sender = sender
        self._on_refused = on_refused

    async def deliver(
        self, session: WorkerSession, batch: Sequence[Item], failed: BaseException | None = None
    ) -> None:
        """Deliver a report; `failed`: it was sent once already, with this error."""
        sender, backoff = self._sender, RetryBackoff(most_s=RETRY_MOST_S)
        while not session.is_over:
            try:
                if failed is not None:
                    error, failed = failed, None
                    raise error
                answer = await sender.send(session, batch)
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
            except (Invalid, TooLarge) as error:
                await self._deliver_apart(session, batch, error)
                return
            except RotaError as error:
                if not session.is_over:
                    sender.note_delay(error)
                    await asyncio.sleep(backoff.wait_s())
            else:
                sender.accept(session, batch, answer)
                return
        sender.lose(batch)

    async def _deliver_apart(
        self, session: WorkerSession, batch: Sequence[Item], error: RotaError
    ) -> None:
        """Find the item that the coordinator refuses."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self.deliver(session, batch[:middle])
            await self.deliver(session, batch[middle:])
            return
        substitute = self._sender.refuse(batch[0], error)
        if substitute is not None:
            await self.deliver(session, [substitute])
