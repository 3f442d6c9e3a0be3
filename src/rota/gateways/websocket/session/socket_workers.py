"""Workers on sockets: the socket of each, and the tasks that it holds.

Theory of operation. A worker that registers over a socket is attached to it. While it has a free
slot, a lease request waits for it; granted tasks are pushed as frames. One timer sends the
heartbeats of all workers whose peers have sent anything. A worker whose socket is closed gets no
more heartbeats, and is evicted by the registry's rules; one that comes back in time is attached
again, as the same incarnation, with the tasks that it holds.

This state may be lost: the store knows which tasks a worker holds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from rota.core.commands import BeatWorker, LeaseWork
from rota.core.ids import TaskId
from rota.core.replies import Beat
from rota.core.sessions import name_of
from rota.core.tasks.model import TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.engine.coordinator import Coordinator
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from rota.gateways.registration import return_leases
from rota.gateways.websocket.connection import Connection
from rota.messages.sessions import FrameError, Outgoing

log = structlog.get_logger("rota.websocket")

LEASE_WAIT_MS = 60_000  # how long one lease request waits before the next
MAX_TASKS_PER_LEASE = 8  # tasks pushed at once; more follow when the socket has capacity
RETRY_PAUSE_S = 1.0  # before the next lease request, after one that failed


@dataclass(slots=True)
class HeldTask:
    """A task that a worker holds."""

    task_id: TaskId
    fence: int
    queue: str
    name: str  # as sessions call it
    # Pushed once more at this time: the worker came back, and may never have received it.
    repeat: tuple[int, TaskRecord] | None = None


def held_of(task: TaskRecord, *, repeat_at_ms: int | None = None) -> HeldTask:
    repeat = None if repeat_at_ms is None else (repeat_at_ms, task)
    return HeldTask(task.id, task.fence, task.lane.queue, name_of(task), repeat)


@dataclass(eq=False)
class SocketWorker:
    """A worker on its socket, with the tasks that it holds."""

    worker: WorkerRecord
    connection: Connection
    holding: dict[tuple[str, str], HeldTask] = field(default_factory=dict)  # by queue and name
    leasing: asyncio.Task[None] | None = None
    _slot_freed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def free_slots(self) -> int:
        return self.worker.max_concurrent_tasks - len(self.holding)

    def take(self, held: HeldTask) -> None:
        self.holding[held.queue, held.name] = held

    def release(self, held: HeldTask) -> None:
        """Forget a task; the registry limits the leases of a worker in any case."""
        self.holding.pop((held.queue, held.name), None)
        self._slot_freed.set()

    async def wait_for_slot(self) -> int:
        while self.free_slots <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        return self.free_slots

    def running(self) -> tuple[TaskId, ...]:
        return tuple(held.task_id for held in self.holding.values())

    def find(self, task_ids: Iterable[TaskId]) -> list[HeldTask]:
        wanted = set(task_ids)
        return [held for held in self.holding.values() if held.task_id in wanted]


class SocketWorkers:
    """All workers on sockets of a coordinator. Belongs to the event loop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._registering: dict[str, tuple[asyncio.Lock, int]] = {}
        self._by_connection: dict[Connection, set[SocketWorker]] = {}
        self.by_worker: dict[str, SocketWorker] = {}

    # --- attaching ------------------------------------------------------------------------------

    @asynccontextmanager
    async def registering(self, worker_id: str) -> AsyncIterator[None]:
        """One registration of a worker at a time, so that none is half done."""
        lock, users = self._registering.get(worker_id, (asyncio.Lock(), 0))
        self._registering[worker_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._registering.pop(worker_id)
            if users > 1:
                self._registering[worker_id] = lock, users - 1

    def attach(
        self, worker: WorkerRecord, connection: Connection, held: Sequence[HeldTask] = ()
    ) -> SocketWorker:
        before = self.by_worker.get(worker.id)
        if before is not None:
            self.detach(before)
            if before.connection is not connection:
                _send_error(
                    before, f"worker {worker.id!r} is on another socket now", "worker_replaced"
                )
        socket_worker = SocketWorker(worker, connection)
        for one in held:
            socket_worker.take(one)
        self.by_worker[worker.id] = socket_worker
        self._by_connection.setdefault(connection, set()).add(socket_worker)
        if connection.is_open:
            socket_worker.leasing = asyncio.create_task(self._lease_work(socket_worker))
        else:
            self.detach(socket_worker)
        return socket_worker

    def detach(self, socket_worker: SocketWorker) -> None:
        if self.by_worker.get(socket_worker.worker.id) is socket_worker:
            del self.by_worker[socket_worker.worker.id]
        attached = self._by_connection.get(socket_worker.connection, set())
        attached.discard(socket_worker)
        if not attached:
            self._by_connection.pop(socket_worker.connection, None)
        if socket_worker.leasing is not None:
            socket_worker.leasing.cancel()

    def detach_all(self, connection: Connection) -> None:
        """Detach all workers of a socket."""
        for socket_worker in list(self._by_connection.get(connection, ())):
            self.detach(socket_worker)

    def _remove(self, socket_worker: SocketWorker, error: RotaError) -> None:
        """Detach a worker that the registry no longer knows."""
        if self.by_worker.get(socket_worker.worker.id) is socket_worker:
            _send_error(socket_worker, error.detail, error.code)
        self.detach(socket_worker)

    # --- pushing work ---------------------------------------------------------------------------

    async def _lease_work(self, socket_worker: SocketWorker) -> None:
        worker, coordinator = socket_worker.worker, self._coordinator
        while not coordinator.is_stopping and socket_worker.connection.is_open:
            free = await socket_worker.wait_for_slot()
            await socket_worker.connection.wait_for_capacity()
            asking = LeaseWork(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                most=min(free, MAX_TASKS_PER_LEASE),
                wait_ms=LEASE_WAIT_MS,
            )
            try:
                granted = await coordinator.execute(asking)
            except (WorkerNotFound, StaleIncarnation) as error:
                self._remove(socket_worker, error)
                return
            except Exception as error:
                expected = isinstance(error, RotaError)
                log.warning("lease_request_failed", exc_info=None if expected else error)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            for task in granted.leases:
                socket_worker.take(held_of(task))
                # Not at once: the caller that submitted the task is answered first.
                asyncio.get_running_loop().call_soon(self._push, worker, task)

    def _push(self, worker: WorkerRecord, task: TaskRecord) -> None:
        """Push a task to its worker on its socket of now; without one, return the task."""
        socket_worker = self.by_worker.get(worker.id)
        held = held_of(task)
        if socket_worker is None or socket_worker.worker.incarnation != worker.incarnation:
            self.return_leases(worker, [held])
            return
        if not socket_worker.connection.is_open:
            socket_worker.release(held)
            self.return_leases(worker, [held])
            return

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            if not sent:
                socket_worker.release(held)
                # Not at once: the socket is ending, and its workers are about to leave it.
                asyncio.get_running_loop().call_soon(self._push, worker, task)

        socket_worker.take(held)
        socket_worker.connection.put(_frame(socket_worker, task), receipt)

    def return_leases(self, worker: WorkerRecord, held: Sequence[HeldTask]) -> None:
        leases = ((one.task_id, one.fence) for one in held)
        return_leases(self._coordinator, worker.id, worker.incarnation, leases)

    # --- heartbeats -----------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send the heartbeats of all workers whose peers have sent anything, in one batch."""
        living = [
            socket_worker
            for connection, attached in self._by_connection.items()
            if connection.was_alive()
            for socket_worker in attached
        ]
        if not living:
            return
        beats = [self._coordinator.execute(heartbeat_of(one)) for one in living]
        replies = await asyncio.gather(*beats, return_exceptions=True)
        for socket_worker, reply in zip(living, replies, strict=True):
            if isinstance(reply, Beat):
                self.apply_heartbeat(socket_worker, reply)
            elif isinstance(reply, WorkerNotFound | StaleIncarnation):
                self._remove(socket_worker, reply)

    def apply_heartbeat(self, socket_worker: SocketWorker, beat: Beat) -> None:
        """Push cancellations to a worker, and repeat tasks that it may never have received."""
        for held in socket_worker.find(beat.cancel):
            self._stop(socket_worker, held, "cancelled")
        for held in socket_worker.find(beat.lost):
            self._stop(socket_worker, held, "lost")
        now_ms = self._coordinator.clock.now_ms()
        for held in socket_worker.holding.values():
            if held.repeat is not None and now_ms >= held.repeat[0]:
                socket_worker.connection.put(_frame(socket_worker, held.repeat[1]))
                held.repeat = None

    def _stop(self, socket_worker: SocketWorker, held: HeldTask, reason: str) -> None:
        socket_worker.release(held)
        connection = socket_worker.connection
        connection.put(
            Outgoing(
                type="cancel_task",
                sender="coordinator",
                to=socket_worker.worker.id,
                task_id=held.name,
                fence=held.fence,
                payload={"reason": reason},
                id=connection.new_id(),
                timestamp=self._coordinator.clock.now_ms(),
            )
        )

    def stop(self) -> None:
        for socket_worker in list(self.by_worker.values()):
            self.detach(socket_worker)


def heartbeat_of(socket_worker: SocketWorker) -> BeatWorker:
    worker = socket_worker.worker
    return BeatWorker(
        worker_id=worker.id, incarnation=worker.incarnation, running=socket_worker.running()
    )


def _frame(socket_worker: SocketWorker, task: TaskRecord) -> Outgoing:
    connection = socket_worker.connection
    return Outgoing(
        type="process_task",
        sender="coordinator",
        to=socket_worker.worker.id,
        task_id=name_of(task),
        payload=connection.codec.from_json(task.payload),
        fence=task.fence,
        name=task.lane.name,
        queue=task.lane.queue,
        attempt=task.attempt,
        id=connection.new_id(),
        timestamp=task.started_at_ms,
    )


def _send_error(socket_worker: SocketWorker, error: str, code: str) -> None:
    socket_worker.connection.send("Error", FrameError(error=error, code=code))
