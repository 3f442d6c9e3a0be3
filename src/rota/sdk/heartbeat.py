"""How does a worker stay alive in the coordinator's eyes? By a thread that does nothing but beat.

It beats over the worker's stream, if that answers soon, and otherwise over a connection of its own,
so neither a handler that blocks the event loop nor a slow report makes the worker look dead. It is
also the one to notice that the session cannot be renewed in time: then it tells handlers to stop,
before the coordinator gives their work to others.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import structlog

from rota.errors import RotaError, StaleIncarnation, Unavailable, WorkerNotFound
from rota.messages import HeartbeatAnswer, HeartbeatRequest
from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.sessions import Session, now_s

log = structlog.get_logger("rota.worker")

AGAIN_AFTER_MOST_S = 1.0  # after a beat that got no answer
SHORTEST_TIMEOUT_S = 0.1
JOIN_TIMEOUT_S = 1.0


class Beat(NamedTuple):
    """An answered beat; `sent_at` tells which leases it can have spoken of."""

    session: Session
    sent_at: float
    answer: HeartbeatAnswer


ByStream = Callable[[Session, HeartbeatRequest], HeartbeatAnswer | None]


class CutOff(Unavailable):
    """No beat got through for so long that the leases must be taken for lost."""


class Heartbeat:
    """Beats for the session it is given, on a thread of its own."""

    def __init__(
        self,
        client: Client,
        *,
        describe: Callable[[], tuple[list[str], dict[str, float]]],
        on_beat: Callable[[Beat], None],
        on_over: Callable[[Session, RotaError], None],
        on_broken: Callable[[Exception], None],
        by_stream: ByStream = lambda *_: None,
    ) -> None:
        """`by_stream` beats over a stream, if there is one; if not, it is done by a call."""
        self._client = client
        self._by_stream = by_stream
        self._describe = describe
        self._on_beat = on_beat
        self._on_over = on_over
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="rota-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat_for(self, session: Session | None) -> None:
        with self._changed:
            self._session = session
            self._changed.notify()

    def stop(self) -> None:
        """Stop beating; a beat that is under way may still end on its own."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def join(self) -> None:
        """Wait a little for the thread; one that hangs in the network is left to itself."""
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while (session := self._next_session()) is not None:
                self._keep(session)
        except Exception as error:  # noqa: BLE001 - a worker without a heartbeat must not go on
            self._on_broken(error)

    def _next_session(self) -> Session | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._is_wanted(self._session))
            return None if self._is_stopped else self._session

    def _is_wanted(self, session: Session | None) -> bool:
        return session is not None and not session.is_over

    def _keep(self, session: Session) -> None:
        """Renew a session until it is over or not wanted any more."""
        wait_s = session.interval_s
        while self._waited(session, wait_s):
            if now_s() >= session.ends_at:
                self._end(session, CutOff("no heartbeat got through for a whole lease"))
                return
            try:
                self._beat(session)
                wait_s = session.interval_s
            except (WorkerNotFound, StaleIncarnation) as error:
                self._end(session, error)
                return
            except RotaError as error:
                log.warning("heartbeat not answered", reason=error.detail)
                wait_s = min(session.interval_s / 3, AGAIN_AFTER_MOST_S)

    def _waited(self, session: Session, wait_s: float) -> bool:
        """Wait for the next beat's time; False when this session needs no more of them."""
        wait_s = min(wait_s, max(0.0, session.ends_at - now_s()))
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or self._session is not session, timeout=wait_s
            )
            return not self._is_stopped and self._session is session and not session.is_over

    def _beat(self, session: Session) -> None:
        running, load = self._describe()
        request = HeartbeatRequest(incarnation=session.incarnation, running=running, load=load)
        sent_at = now_s()
        answer = self._by_stream(session, request)
        if answer is None:
            sent_at = now_s()
            # Half of what is left: time for another try on another connection.
            timeout_s = max(SHORTEST_TIMEOUT_S, (session.ends_at - sent_at) / 2)
            call = calls.heartbeat(session.worker_id, request)
            answer = self._client.run(msgspec.structs.replace(call, timeout_s=timeout_s))
        session.renewed_at = sent_at
        session.take_terms(answer.heartbeat_interval_ms, answer.lease_ms)
        self._on_beat(Beat(session, sent_at, answer))

    def _end(self, session: Session, error: RotaError) -> None:
        with self._changed:
            if self._session is session:
                self._session = None
        self._on_over(session, error)
