"""Which worker lives on which socket, and what has it been given?

Theory of operation. A worker that registers over a socket is attached to it. While it has room, a
call for work waits in its name; what it is granted is pushed as a frame. That it lives is told by
its socket: one timer beats for all whose peers were heard of. When a socket is gone its workers are
no longer beaten for, and the registry's own rule does the rest; a worker that comes back in time is
attached again, as the same incarnation, with what it holds.

What is known here can be lost: what a worker holds stands in the store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog

from rota.core.events import Heartbeat, LeaseWork, ReturnLeases
from rota.core.replies import Beat
from rota.core.sessions import name_of
from rota.core.tasks import Task
from rota.core.workers import Worker
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.holding import Attachment, Held, held_of
from rota.messages.sessions import UI, FrameError, Outgoing

log = structlog.get_logger("rota.websocket")

PARKED_MS = 60_000  # how long a call for work waits before it is made anew
MOST_PER_GRANT = 8  # tasks pushed at once; more follow when the socket has room for them
TROUBLE_PAUSE_S = 1.0  # before work is asked for again, when it could not be


class Attachments:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._arriving: dict[str, tuple[asyncio.Lock, int]] = {}
        self._errands: set[asyncio.Task[Any]] = set()
        self._by_connection: dict[Connection, set[Attachment]] = {}
        self.by_worker: dict[str, Attachment] = {}

    # --- coming and going -----------------------------------------------------------------------

    @asynccontextmanager
    async def arriving(self, worker_id: str) -> AsyncIterator[None]:
        """One registration of a worker at a time: the newest counts, and none is half done."""
        lock, users = self._arriving.get(worker_id, (asyncio.Lock(), 0))
        self._arriving[worker_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._arriving.pop(worker_id)
            if users > 1:
                self._arriving[worker_id] = lock, users - 1

    def attach(
        self, worker: Worker, connection: Connection, held: Sequence[Held] = ()
    ) -> Attachment:
        before = self.by_worker.get(worker.id)
        if before is not None:
            self.detach(before)
            if before.connection is not connection:
                _tell(before, f"worker {worker.id!r} is on another socket now", "worker_replaced")
        attachment = Attachment(worker, connection)
        for one in held:
            attachment.take(one)
        self.by_worker[worker.id] = attachment
        self._by_connection.setdefault(connection, set()).add(attachment)
        if connection.is_open:
            attachment.feeding = asyncio.create_task(self._feed(attachment))
        else:
            self.detach(attachment)
        return attachment

    def detach(self, attachment: Attachment) -> None:
        if self.by_worker.get(attachment.worker.id) is attachment:
            del self.by_worker[attachment.worker.id]
        neighbours = self._by_connection.get(attachment.connection, set())
        neighbours.discard(attachment)
        if not neighbours:
            self._by_connection.pop(attachment.connection, None)
        if attachment.feeding is not None:
            attachment.feeding.cancel()

    def detach_all(self, connection: Connection) -> None:
        """The socket is gone."""
        for attachment in list(self._by_connection.get(connection, ())):
            self.detach(attachment)

    def _dismiss(self, attachment: Attachment, error: RotaError) -> None:
        """The registry does not know this worker any more."""
        if self.by_worker.get(attachment.worker.id) is attachment:
            _tell(attachment, error.detail, error.code)
        self.detach(attachment)

    # --- giving work ----------------------------------------------------------------------------

    async def _feed(self, attachment: Attachment) -> None:
        worker, coordinator = attachment.worker, self._coordinator
        while coordinator.is_ready and attachment.connection.is_open:
            room = await attachment.wait_for_room()
            await attachment.connection.room()
            asking = LeaseWork(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                most=min(room, MOST_PER_GRANT),
            )
            try:
                granted = await coordinator.lease(asking, wait_ms=PARKED_MS)
            except (WorkerNotFound, StaleIncarnation) as error:
                self._dismiss(attachment, error)
                return
            except Exception as error:
                expected = isinstance(error, RotaError)
                log.warning("no work can be asked for", exc_info=None if expected else error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
                continue
            for task in granted.leases:
                attachment.take(held_of(task))
                # Not at once: whoever brought the work is answered first, also on the same socket.
                asyncio.get_running_loop().call_soon(self._push, worker, task)

    def _push(self, worker: Worker, task: Task) -> None:
        """Hand a task to its worker, wherever that is now; if it is nowhere, the task goes back."""
        attachment = self.by_worker.get(worker.id)
        held = held_of(task)
        if attachment is None or attachment.worker.incarnation != worker.incarnation:
            self.give_back(worker, [held])
            return
        if not attachment.connection.is_open:
            attachment.let_go(held)
            self.give_back(worker, [held])
            return

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            if not sent:
                attachment.let_go(held)
                # Not at once: the socket is ending, and its workers are about to leave it.
                asyncio.get_running_loop().call_soon(self._push, worker, task)

        attachment.take(held)
        attachment.connection.put(_frame(attachment, task), receipt)

    def give_back(self, worker: Worker, held: Sequence[Held]) -> None:
        """Tasks that never reached their worker go back, as if never given."""
        if held:
            returned = ReturnLeases(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                leases=tuple((one.task_id, one.fence) for one in held),
            )
            self._run(self._coordinator.handle(returned))

    # --- beating --------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Say that all workers live whose peers were heard of; all at once, so in one batch."""
        living = [
            attachment
            for connection, attached in self._by_connection.items()
            if connection.was_heard()
            for attachment in attached
        ]
        if not living:
            return
        replies = await self._coordinator.handle_together([beat_of(one) for one in living])
        for attachment, reply in zip(living, replies, strict=True):
            if isinstance(reply, Beat):
                self.noted(attachment, reply)
            elif isinstance(reply, WorkerNotFound | StaleIncarnation):
                self._dismiss(attachment, reply)

    def noted(self, attachment: Attachment, beat: Beat) -> None:
        """Tell a worker what it need not go on with, and repeat what it may never have got."""
        for held in attachment.find(beat.cancel):
            self._stop(attachment, held, "cancelled")
        for held in attachment.find(beat.lost):
            self._stop(attachment, held, "lost")
        now_ms = self._coordinator.clock.now_ms()
        for held in attachment.holding.values():
            if held.again is not None and now_ms >= held.again[0]:
                attachment.connection.put(_frame(attachment, held.again[1]))
                held.again = None

    def _stop(self, attachment: Attachment, held: Held, reason: str) -> None:
        attachment.let_go(held)
        connection = attachment.connection
        connection.put(
            Outgoing(
                type="cancel_task",
                sender="coordinator",
                to=attachment.worker.id,
                task_id=held.name,
                fence=held.fence,
                payload={"reason": reason},
                id=connection.new_id(),
                timestamp=self._coordinator.clock.now_ms(),
            )
        )

    # --- errands that nobody waits for ------------------------------------------------------------

    def _run(self, errand: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(_quietly(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def stop(self) -> None:
        for attachment in list(self.by_worker.values()):
            self.detach(attachment)
        await asyncio.gather(*self._errands)


def beat_of(attachment: Attachment) -> Heartbeat:
    worker = attachment.worker
    return Heartbeat(
        worker_id=worker.id, incarnation=worker.incarnation, running=attachment.running()
    )


def _frame(attachment: Attachment, task: Task) -> Outgoing:
    connection = attachment.connection
    return Outgoing(
        type="process_task",
        sender="coordinator",
        to=attachment.worker.id,
        task_id=name_of(task),
        payload=connection.codec.from_json(task.payload),
        fence=task.fence,
        name=task.lane.name,
        queue=task.lane.queue,
        attempt=task.attempt,
        id=connection.new_id(),
        timestamp=task.started_at_ms,
    )


def _tell(attachment: Attachment, error: str, code: str) -> None:
    connection = attachment.connection
    connection.put(
        Outgoing(
            type="Error",
            to=UI,
            sender=connection.address,
            payload=FrameError(error=error, code=code),
            id=connection.new_id(),
        )
    )


async def _quietly(errand: Awaitable[Any]) -> None:
    try:
        await errand
    except RotaError as error:
        # Only late: a lease that nobody lists goes back by itself.
        log.debug("an errand failed", code=error.code)
