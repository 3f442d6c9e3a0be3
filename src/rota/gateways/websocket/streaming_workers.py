"""Which workers stream, and how much work is on its way to each?

Theory of operation. A stream is a worker's open socket with one call for work that stands with the
coordinator. The worker says how many tasks it has room for and how many leases it has had; what
was given and not had yet is on its way and takes up room too, so both sides mean the same number
whenever they speak. What is granted is pushed in frames of moderate size. Leases whose frame never
left go back at once; those that were lost on the way do when the worker resumes without them.

What is known here can be lost: a worker whose socket has gone resumes over another.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog

from rota.core.decisions import TellCancelled
from rota.core.events import ReturnLeases
from rota.core.ids import TaskId, to_text
from rota.core.limits import MAX_LEASES_PER_CALL
from rota.core.replies import Granted
from rota.core.tasks import DEFAULT_OPTIONS, Task
from rota.engine.coordinator import Coordinator
from rota.engine.standing import StandingCall
from rota.errors import RotaError
from rota.gateways.websocket.connection import Connection
from rota.gateways.websocket.streaming_beats import Beats
from rota.messages import streams
from rota.messages.sessions import Outgoing
from rota.messages.streams import StreamCancel, StreamEnded

log = structlog.get_logger("rota.websocket")

FRAME_BYTES = 1024 * 1024  # of payloads in one frame, unless one alone is larger
GRANT_BYTES = 16 * 1024 * 1024  # of payloads on their way to one worker; the rest is given back
USUAL_SHARE = 0.5  # how much the newest grant counts in the usual size of a payload


class Stream:
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
        self._free = 0  # as the worker said last
        self._taken = 0
        self._given = 0  # leases that were sent, or are about to be
        self._usual_bytes = 1.0  # of a payload, lately
        self.connection = connection
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.interval_ms = interval_ms  # at which the worker beats
        self.is_open = True
        self._call: StandingCall = coordinator.stand(
            worker_id,
            incarnation,
            on_granted=self._push,
            on_ended=self.dismiss,
        )

    def credit(self, free: int, taken: int) -> None:
        """The worker has room for so many, having had so many."""
        self._free, self._taken = free, taken
        self._call.ask(self._room)

    @property
    def _room(self) -> int:
        if not self.connection.is_roomy:
            return 0  # a worker that does not read need not be given more
        room = self._free - (self._given - self._taken)
        affordable = int(GRANT_BYTES / self._usual_bytes)
        return max(0, min(room, MAX_LEASES_PER_CALL, max(1, affordable)))

    def _push(self, granted: Granted) -> int:
        """Send leases on their way; the answer is for how many more there is room."""
        leases = granted.leases
        if not leases:
            return self._room
        size = sum([len(task.payload) for task in leases])
        self._usual_bytes += (size / len(leases) - self._usual_bytes) * USUAL_SHARE
        self._usual_bytes = max(1.0, self._usual_bytes)
        if size <= FRAME_BYTES:  # nearly always
            self._send(leases)
        else:
            for number, some in enumerate(_in_frames(leases)):
                if number * FRAME_BYTES < GRANT_BYTES:
                    self._send(some)
                else:
                    self._give_back(some)
        return self._room

    def _send(self, leases: Sequence[Task]) -> None:
        self._given += len(leases)

        def receipt(sent: bool) -> None:  # noqa: FBT001 - the form of a receipt
            if sent:
                self._call.ask(self._room)  # it may have been full until now
            else:
                self._give_back(leases)

        self.tell(streams.LEASES, {"leases": lease_rows(leases)}, receipt)

    def _give_back(self, leases: Sequence[Task]) -> None:
        give_back(self._coordinator, self, [(task.id, task.fence) for task in leases])

    def tell(self, kind: str, payload: Any, receipt: Callable[[bool], None] | None = None) -> None:
        connection = self.connection
        message = Outgoing(
            type=kind,
            to=f"worker:{self.worker_id}",
            sender=streams.MAIN,
            payload=payload,
            timestamp=self._coordinator.clock.now_ms(),
        )
        connection.put(message, receipt)

    def dismiss(self, error: RotaError) -> None:
        """The coordinator does not know this registration any more."""
        if self.is_open:
            self.close()
            self.tell(streams.ENDED, StreamEnded(error=error.detail, code=error.code))

    def close(self) -> None:
        self.is_open = False
        self._call.withdraw()


class Streams:
    """All streams of a coordinator; the newest of a worker counts."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._by_connection: dict[Connection, Stream] = {}
        self._by_incarnation: dict[int, Stream] = {}
        self.beats = Beats(coordinator)
        coordinator.watch_cancellations(self._tell_cancelled, lambda: bool(self._by_incarnation))

    def __len__(self) -> int:
        return len(self._by_connection)

    def of(self, connection: Connection) -> Stream | None:
        return self._by_connection.get(connection)

    def open(
        self, connection: Connection, worker_id: str, incarnation: int, interval_ms: int
    ) -> Stream:
        """Begin a stream; what was open on this socket, or for this worker, is over."""
        self.end(connection)
        before = self._by_incarnation.get(incarnation)
        if before is not None:
            self.end(before.connection)
        stream = Stream(
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
        """The socket is gone, or has another use now."""
        stream = self._by_connection.pop(connection, None)
        if stream is not None:
            stream.close()
            if self._by_incarnation.get(stream.incarnation) is stream:
                del self._by_incarnation[stream.incarnation]

    def _tell_cancelled(self, cancelled: Sequence[TellCancelled]) -> None:
        told: dict[Stream, list[int]] = {}
        for one in cancelled:
            stream = self._by_incarnation.get(one.incarnation)
            if stream is not None:
                told.setdefault(stream, []).append(one.task_id)
        for stream, task_ids in told.items():
            stream.tell(streams.CANCEL, StreamCancel(task_ids=task_ids))


def give_back(
    coordinator: Coordinator, stream: Stream, leases: Iterable[tuple[TaskId, int]]
) -> None:
    """Tasks that never reached their worker go back, as if never given."""
    returned = ReturnLeases(
        worker_id=stream.worker_id, incarnation=stream.incarnation, leases=tuple(leases)
    )
    if returned.leases:
        try:
            future = coordinator.submit(returned)
        except RotaError as error:
            log.debug("leases are not given back", code=error.code)  # they go back by themselves
        else:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())


# --- how leases are written -----------------------------------------------------------------------


def _in_frames(leases: Sequence[Task]) -> Iterator[list[Task]]:
    """Leases in order, in groups of moderate size."""
    some: list[Task] = []
    size = 0
    for task in leases:
        if some and size + len(task.payload) > FRAME_BYTES:
            yield some
            some, size = [], 0
        some.append(task)
        size += len(task.payload)
    yield some


def lease_rows(leases: Iterable[Task]) -> list[tuple[Any, ...]]:
    """Leases as `StreamedLease` is written, without making one of each."""
    return [
        (
            task.id,
            task.fence,
            task.lane.name,
            task.payload,
            task.attempt,
            task.options.max_attempts,
            task.lane.queue,
            task.priority,
            task.created_at_ms,
        )
        if task.options is DEFAULT_OPTIONS and task.key is None and task.run is None
        else _whole_row(task)
        for task in leases
    ]


def _whole_row(task: Task) -> tuple[Any, ...]:
    options = task.options
    return (
        task.id,
        task.fence,
        task.lane.name,
        task.payload,
        task.attempt,
        options.max_attempts,
        task.lane.queue,
        task.priority,
        task.created_at_ms,
        task.deadline_ms,
        options.timeout_ms,
        task.key,
        options.labels,
        None if task.run is None else to_text(task.run),
    )
