"""Streaming workers and the leases on their way to each.

Theory of operation. A stream is a worker's open socket with one lease subscription. The worker
reports its free slots and how many leases it has received; leases that were sent and not received
yet take up slots too, so both sides count the same. Granted leases are pushed in frames of moderate
size. Leases whose frame never left are returned at once; those that were lost on the way are
returned when the worker resumes without them.

This state may be lost: a worker whose socket has closed resumes over another one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rota.core.commands import BeatWorker
from rota.core.decisions import TellCancelled
from rota.core.ids import TaskId
from rota.core.limits import MAX_LEASES_PER_CALL
from rota.core.replies import Granted
from rota.engine.coordinator import Coordinator
from rota.engine.dispatch.lease_rows import (
    GRANT_BYTES,
    GrantedRows,
    LeaseRows,
    divided,
    in_messages,
)
from rota.engine.dispatch.subscription import LeaseSubscription
from rota.engine.topics import Cancellations, Leases
from rota.errors import RotaError
from rota.gateways.registration import return_leases
from rota.gateways.websocket.connection import Connection
from rota.messages import streams
from rota.messages.sessions import Outgoing
from rota.messages.streams import StreamCancel, StreamEnded

AVERAGE_WEIGHT = 0.5  # how much the newest grant counts in the usual size of a payload
MAX_WAIT_PART = 1 / 20  # of its interval, that a heartbeat may wait
MAX_WAIT_S = 0.25

HeartbeatReply = Callable[[Any], None]  # takes the reply, or the exception


class WorkerStream:
    """One worker on its socket. Belongs to the event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        connection: Connection,
        *,
        worker_id: str,
        incarnation: int,
        interval_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._free = 0  # as the worker reported last
        self._received = 0
        self._sent = 0  # leases that were sent, or are about to be
        self._average_bytes = 1.0  # of a payload, lately
        self.connection = connection
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.interval_ms = interval_ms  # between two heartbeats of the worker
        self.is_open = True
        self._subscription: LeaseSubscription = coordinator.subscribe(
            Leases(
                worker_id=worker_id,
                incarnation=incarnation,
                on_granted=self._push,
                on_ended=self.end_with,
            )
        )

    def credit(self, free: int, taken: int) -> None:
        """Note how many slots the worker has free, and how many leases it has received."""
        self._free, self._received = free, taken
        self._subscription.ask(self._credit)

    @property
    def _credit(self) -> int:
        if not self.connection.has_capacity:
            return 0  # a worker that does not read is given nothing more
        free = self._free - (self._sent - self._received)
        affordable = int(GRANT_BYTES / self._average_bytes)
        return max(0, min(free, MAX_LEASES_PER_CALL, max(1, affordable)))

    def _push(self, granted: Granted | GrantedRows) -> int:
        """Send leases to the worker; return how many more it has slots for."""
        if isinstance(granted, GrantedRows):
            messages = granted.messages  # not too much: the leader has divided them
        elif granted.leases:
            leases, rest = divided(granted.leases)
            messages = in_messages(leases)
            if rest:
                self.return_leases((task.id, task.fence) for task in rest)
        else:
            return self._credit
        size = sum([one.payload_bytes for one in messages])
        count = sum([one.count for one in messages])
        self._average_bytes += (size / count - self._average_bytes) * AVERAGE_WEIGHT
        self._average_bytes = max(1.0, self._average_bytes)
        for one in messages:
            self._send_leases(one)
        return self._credit

    def _send_leases(self, leases: LeaseRows) -> None:
        self._sent += leases.count

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            if sent:
                self._subscription.ask(self._credit)  # the socket may have been busy until now
            else:
                self.return_leases(leases.holdings())

        self.send(streams.LEASES, {"leases": leases.rows}, receipt)

    def return_leases(self, leases: Iterable[tuple[TaskId, int]]) -> None:
        return_leases(self._coordinator, self.worker_id, self.incarnation, leases)

    def send(self, kind: str, payload: Any, receipt: Callable[[bool], None] | None = None) -> None:
        connection = self.connection
        message = Outgoing(
            type=kind,
            to=f"worker:{self.worker_id}",
            sender=streams.MAIN,
            payload=payload,
            timestamp=self._coordinator.clock.now_ms(),
        )
        connection.put(message, receipt)

    def end_with(self, error: RotaError) -> None:
        """End the stream: the coordinator no longer knows this registration."""
        if self.is_open:
            self.close()
            self.send(streams.ENDED, StreamEnded(error=error.detail, code=error.code))

    def close(self) -> None:
        self.is_open = False
        self._subscription.withdraw()


class HeartbeatBatcher:
    """Batches heartbeats that arrive together, since each alone would be a commit.

    A heartbeat waits for a small part of its own interval. Belongs to the event loop.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: list[tuple[BeatWorker, HeartbeatReply]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, beat: BeatWorker, *, interval_ms: int, answer: HeartbeatReply) -> None:
        """Execute a heartbeat soon; `answer` is called with its reply or exception."""
        loop = asyncio.get_running_loop()
        self._waiting.append((beat, answer))
        when = loop.time() + min(MAX_WAIT_S, interval_ms / 1000 * MAX_WAIT_PART)
        if self._timer is not None and when < self._timer.when():
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(when, self._flush)

    def _flush(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for beat, answer in waiting:
            try:
                self._coordinator.execute(beat, on_reply=answer)
            except RotaError as error:
                answer(error)


class WorkerStreams:
    """All streams of a coordinator, one for each worker: a newer one ends the one before."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._by_connection: dict[Connection, WorkerStream] = {}
        self._by_incarnation: dict[int, WorkerStream] = {}
        self.beats = HeartbeatBatcher(coordinator)
        coordinator.subscribe(Cancellations(self._push_cancellations))

    def __len__(self) -> int:
        return len(self._by_connection)

    def of(self, connection: Connection) -> WorkerStream | None:
        return self._by_connection.get(connection)

    def open(
        self, connection: Connection, worker_id: str, incarnation: int, interval_ms: int
    ) -> WorkerStream:
        """Open a stream, and end those that are open on this socket or for this worker."""
        self.end(connection)
        before = self._by_incarnation.get(incarnation)
        if before is not None:
            self.end(before.connection)
        stream = WorkerStream(
            self._coordinator,
            connection,
            worker_id=worker_id,
            incarnation=incarnation,
            interval_ms=interval_ms,
        )
        if connection.is_open:
            self._by_connection[connection] = stream
            self._by_incarnation[incarnation] = stream
        else:
            stream.close()
        return stream

    def end(self, connection: Connection) -> None:
        """End the stream of a socket that is closed or has another use now."""
        stream = self._by_connection.pop(connection, None)
        if stream is not None:
            stream.close()
            if self._by_incarnation.get(stream.incarnation) is stream:
                del self._by_incarnation[stream.incarnation]

    def _push_cancellations(self, cancelled: Sequence[TellCancelled]) -> None:
        by_stream: dict[WorkerStream, list[int]] = {}
        for one in cancelled:
            stream = self._by_incarnation.get(one.incarnation)
            if stream is not None:
                by_stream.setdefault(stream, []).append(one.task_id)
        for stream, task_ids in by_stream.items():
            stream.send(streams.CANCEL, StreamCancel(task_ids=task_ids))
