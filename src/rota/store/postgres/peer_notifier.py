"""NOTIFY between coordinators: quick, cheap, and allowed to be lost.

One thread with its own connection listens and notifies. A notification has no content, is sent at
most once in a few milliseconds, and outside of every write: NOTIFY makes commits wait for each
other. Peers that miss notifications poll the change counter.
"""

import contextlib
import os
import random
import select
import threading
import time
from collections.abc import Callable

import structlog

from rota.store.postgres.address import Address
from rota.store.postgres.connection import ConnectionLost, PostgresConnection, StatementRefused

log = structlog.get_logger("rota.store")

PAUSE_S = 0.004  # between two notifications
TIMEOUT_MS = 5_000  # of one notification
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
APPLICATION = "rota-hints"


class PeerNotifier:
    def __init__(self, address: Address, *, is_enabled: bool) -> None:
        self._address = address
        self._is_enabled = is_enabled
        self._channel = f"rota_{address.schema}"
        self._callbacks: list[Callable[[], None]] = []
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()  # a notification has to be sent
        self._closed = threading.Event()
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._notified_at = 0.0

    def notify(self) -> None:
        if self._is_enabled and not self._wanted.is_set():
            self._wanted.set()
            self._start()
            self._wake_thread()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        with self._guard:
            self._callbacks.append(callback)
        if self._is_enabled:
            self._start()

        def stop() -> None:
            with self._guard:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return stop

    def close(self) -> None:
        self._closed.set()
        self._wake_thread()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()
        os.close(self._awake)
        os.close(self._wake)

    def _start(self) -> None:
        with self._guard:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="rota-hints", daemon=True)
                self._thread.start()

    def _wake_thread(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"x")

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                connection = PostgresConnection(
                    self._address.url, name=APPLICATION, limit_ms=TIMEOUT_MS
                )
                connection.script(f'LISTEN "{self._channel}"'.encode())
                pause_s = FIRST_PAUSE_S
                # Notifications from before LISTEN are lost: call back once.
                self._call_back()
                self._exchange(connection)
            except (ConnectionLost, StatementRefused) as error:
                log.info("peer_hints_interrupted", store=self._address.shown, problem=str(error))
                self._closed.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _exchange(self, connection: PostgresConnection) -> None:
        """Listen and notify until `close`, or until the connection is lost."""
        socket = connection.pgconn.socket
        try:
            while not self._closed.is_set():
                ready, _, _ = select.select([socket, self._awake], [], [], self._timeout_s())
                if self._awake in ready:
                    os.read(self._awake, 4_096)
                if socket in ready:
                    connection.consume_input()
                if connection.was_notified_by_peer():
                    self._call_back()
                if self._wanted.is_set() and time.monotonic() >= self._notified_at + PAUSE_S:
                    self._wanted.clear()
                    self._notified_at = time.monotonic()
                    connection.script(f'NOTIFY "{self._channel}"'.encode())
        finally:
            connection.close()

    def _timeout_s(self) -> float | None:
        if not self._wanted.is_set():
            return None
        return max(0.0, self._notified_at + PAUSE_S - time.monotonic())

    def _call_back(self) -> None:
        with self._guard:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
