"""Any number of service members in one process, each on a socket of its own."""

import select
import time
from typing import Any, Self

import msgspec
import zmq

from benchmarks.processes import Failed
from rota.messages.shards import (
    AssignmentData,
    HeartbeatData,
    HeartbeatMessage,
    Leave,
    LeaveData,
    Register,
    RegisterData,
)

IN_FLIGHT = 2  # heartbeats of one member that wait for their answers
QUIET_S = 0.2  # without changes, after which a crowd counts as quiet
MOST_SOCKETS = 10_000


class _Told(msgspec.Struct):
    data: AssignmentData


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Told).decode


class _Member:
    """The state of a member, which gives up every revoked shard at once."""

    def __init__(self, socket: Any, worker_id: str, incarnation: int) -> None:
        self.socket = socket
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.generation = -1
        self.held: tuple[int, ...] = ()


class Crowd:
    def __init__(self, endpoint: str, service: str, shard_count: int) -> None:
        self.shard_count = shard_count
        self._endpoint = endpoint
        self._service = service
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
        self._poller = zmq.Poller()
        self._members: dict[str, _Member] = {}
        self._by_socket: dict[Any, _Member] = {}
        self._changed_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    # --- sending --------------------------------------------------------------------------------

    def register(self, worker_id: str, *, incarnation: int = 1) -> None:
        """Register a member, or register it again as a new process."""
        member = self._members.get(worker_id)
        if member is not None:
            self._poller.unregister(member.socket)
            self._by_socket.pop(member.socket)
            member.socket.close()
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(self._endpoint)
        self._poller.register(socket, zmq.POLLIN)
        member = _Member(socket, worker_id, incarnation)
        self._members[worker_id] = self._by_socket[socket] = member
        self._changed_s = time.monotonic()
        data = RegisterData(
            service_name=self._service,
            worker_id=worker_id,
            max_shard_count=self.shard_count,
            protocol=2,
            incarnation=incarnation,
        )
        socket.send(_encode(Register(data)))

    def beat(self, worker_id: str) -> None:
        member = self._members[worker_id]
        member.socket.send(self._heartbeat(member))

    def leave(self, worker_id: str) -> None:
        member = self._members.pop(worker_id)
        data = LeaveData(service_name=self._service, worker_id=worker_id)
        member.socket.send(_encode(Leave(data)))

    def forget(self, worker_id: str) -> None:
        """Let the member die: it sends no more messages."""
        del self._members[worker_id]

    def _heartbeat(self, member: _Member) -> bytes:
        data = HeartbeatData(
            service_name=self._service,
            worker_id=member.worker_id,
            max_shard_count=self.shard_count,
            assigned_shards=list(member.held),
            protocol=2,
            incarnation=member.incarnation,
            generation=member.generation,
        )
        return _encode(HeartbeatMessage(data))

    # --- receiving ------------------------------------------------------------------------------

    def held(self, worker_id: str) -> tuple[int, ...]:
        return self._members[worker_id].held

    @property
    def total_held(self) -> int:
        return sum(len(member.held) for member in self._members.values())

    @property
    def is_balanced(self) -> bool:
        sizes = [len(member.held) for member in self._members.values()]
        return max(sizes) - min(sizes) <= 1

    @property
    def is_quiet(self) -> bool:
        return time.monotonic() - self._changed_s > QUIET_S

    def turn(self, *, until_s: float) -> None:
        """Receive messages until that moment, and poll at least once."""
        while True:
            wait_ms = max(0, int((until_s - time.monotonic()) * 1000))
            for socket, _ in self._poller.poll(wait_ms):
                self._hear(self._by_socket.get(socket), socket)
            if time.monotonic() >= until_s:
                return

    def _hear(self, member: _Member | None, socket: Any) -> None:
        told = _decode(socket.recv()).data
        if member is None or told.generation < member.generation:
            return
        if told.status != "ok":
            raise Failed(f"{member.worker_id} was told {told.status}: {told.reason}")
        is_news = told.assigned_shards != member.held or bool(told.revoking)
        member.held, member.generation = told.assigned_shards, told.generation
        if is_news and member.worker_id in self._members:
            self._changed_s = time.monotonic()
            socket.send(self._heartbeat(member))

    def beat_for(self, seconds: float) -> tuple[int, float]:
        """Send heartbeats as fast as answers arrive; return the number of answers and the time."""
        with select.epoll() as watched:
            beating: dict[int, tuple[Any, bytes]] = {}
            for member in self._members.values():
                socket = member.socket
                beating[socket.fd] = socket, self._heartbeat(member)
                watched.register(socket.fd, select.EPOLLIN)
                for _ in range(IN_FLIGHT):
                    socket.send(beating[socket.fd][1])
            answered, start_s = 0, time.monotonic()
            end_s = start_s + seconds
            while time.monotonic() < end_s:
                for descriptor, _ in watched.poll(1.0):
                    answered += _answer_with(*beating[descriptor])
            return answered, time.monotonic() - start_s


def _answer_with(socket: Any, beat: bytes) -> int:
    """Receive all waiting answers, send a heartbeat for each, and return their number.

    The descriptor of a ZeroMQ socket signals only changes, and any call may clear the signal. So a
    signalled socket is read until it is empty. Polling all sockets each time would cost more than
    the coordinator that is measured.
    """
    count = 0
    while socket.get(zmq.EVENTS) & zmq.POLLIN:
        socket.recv()
        socket.send(beat)
        count += 1
    return count
