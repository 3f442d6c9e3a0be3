"""The worker's heartbeat, on a thread of its own.

It beats over the worker's stream if that answers soon, and otherwise over a connection of its own,
so neither a handler that blocks the event loop nor a slow report makes the worker look dead. It
also notices that the session cannot be renewed in time; then it stops handlers before the
coordinator gives their work to others.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rota.errors import RotaError, StaleIncarnation, Unavailable, WorkerNotFound
from rota.messages import HeartbeatAnswer, HeartbeatRequest
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.timing import now_s
from rota.sdk.worker.contact import CoordinatorContact
from rota.sdk.worker.session import WorkerSession

MOST_RETRY_PAUSE_S = 1.0  # after a beat without an answer
SHORTEST_TIMEOUT_S = 0.1
JOIN_TIMEOUT_S = 1.0


class HeartbeatResult(NamedTuple):
    """An answered heartbeat; it does not cover leases that began after `sent_at`."""

    session: WorkerSession
    sent_at: float
    answer: HeartbeatAnswer


BeatByStream = Callable[[WorkerSession, HeartbeatRequest], HeartbeatAnswer | None]


class CutOff(Unavailable):
    """No beat got through for so long that the leases count as lost."""


class HeartbeatThread:
    """Beats for the session that it is given."""

    def __init__(
        self,
        client: Client,
        *,
        contact: CoordinatorContact,
        describe: Callable[[], tuple[list[str], dict[str, float]]],
        on_beat: Callable[[HeartbeatResult], None],
        on_over: Callable[[WorkerSession, RotaError], None],
        on_broken: Callable[[Exception], None],
        beat_by_stream: BeatByStream = lambda *_: None,
    ) -> None:
        """`beat_by_stream` returns None when there is no stream; then a call carries the beat."""
        self._client = client
        self._contact = contact
        self._beat_by_stream = beat_by_stream
        self._describe = describe
        self._on_beat = on_beat
        self._on_over = on_over
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._session: WorkerSession | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="rota-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat_for(self, session: WorkerSession | None) -> None:
        with self._changed:
            self._session = session
            self._changed.notify()

    def stop(self) -> None:
        """Stop beating; a beat under way ends by itself."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def join(self) -> None:
        """Wait briefly for the thread; it may hang in the network."""
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while (session := self._next_session()) is not None:
                self._renew(session)
        except Exception as error:  # noqa: BLE001 - a worker without a heartbeat must not go on
            self._on_broken(error)

    def _next_session(self) -> WorkerSession | None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_stopped or (self._session is not None and not self._session.is_over)
                )
            )
            return None if self._is_stopped else self._session

    def _renew(self, session: WorkerSession) -> None:
        """Renew a session until it is over or replaced."""
        wait_s = session.interval_s
        while self._wait(session, wait_s):
            if now_s() >= session.ends_at:
                self._end(session, CutOff("no heartbeat got through for a whole lease"))
                return
            began_at = now_s()
            try:
                self._beat(session)
                wait_s = session.interval_s
            except (WorkerNotFound, StaleIncarnation) as error:
                self._end(session, error)
                return
            except RotaError as error:
                self._contact.note_failure("heartbeat_failed", error, sent_at=began_at)
                wait_s = min(session.interval_s / 3, MOST_RETRY_PAUSE_S)

    def _wait(self, session: WorkerSession, wait_s: float) -> bool:
        """Wait until the next beat is due; False when this session needs no more beats."""
        wait_s = min(wait_s, max(0.0, session.ends_at - now_s()))
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or self._session is not session, timeout=wait_s
            )
            return not self._is_stopped and self._session is session and not session.is_over

    def _beat(self, session: WorkerSession) -> None:
        running, load = self._describe()
        request = HeartbeatRequest(incarnation=session.incarnation, running=running, load=load)
        sent_at = now_s()
        answer = self._beat_by_stream(session, request)
        if answer is None:
            sent_at = now_s()
            # Half of the remaining time, so that another try on another connection is possible.
            timeout_s = max(SHORTEST_TIMEOUT_S, (session.ends_at - sent_at) / 2)
            call = calls.heartbeat(session.worker_id, request)
            answer = self._client.run(msgspec.structs.replace(call, timeout_s=timeout_s))
        self._contact.note_answer()
        session.renewed_at = sent_at
        session.set_terms(answer.heartbeat_interval_ms, answer.lease_ms)
        self._on_beat(HeartbeatResult(session, sent_at, answer))

    def _end(self, session: WorkerSession, error: RotaError) -> None:
        with self._changed:
            if self._session is session:
                self._session = None
        self._on_over(session, error)


class LoopLag:
    """Measures the lag of an event loop from another thread, by a callback that it schedules."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled_at: float | None = None
        self._lag_s = 0.0

    def measure_ms(self) -> float:
        """The lag of the last callback, or of the one that still waits."""
        if self._scheduled_at is not None:
            return (time.monotonic() - self._scheduled_at) * 1000
        self._scheduled_at = time.monotonic()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._record)
        return self._lag_s * 1000

    def _record(self) -> None:
        if self._scheduled_at is not None:
            self._lag_s = time.monotonic() - self._scheduled_at
            self._scheduled_at = None
