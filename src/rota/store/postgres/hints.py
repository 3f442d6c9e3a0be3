"""How do coordinators tell each other that there is something new? Soon, cheaply, or not at all.

One thread with a connection of its own listens and tells. It tells nothing but that it tells, at
most once in a few milliseconds, and outside of every write: NOTIFY makes commits wait for each
other. What is lost while the connection is away is made up for by those who ask for `turn`.
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
from rota.store.postgres.link import Link, LinkLost, Refused

log = structlog.get_logger("rota.store")

PAUSE_S = 0.004  # between two hints
ANSWER_MS = 5_000  # that a hint may take
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
APPLICATION = "rota-hints"


class Hints:
    def __init__(self, address: Address, *, is_on: bool) -> None:
        self._address = address
        self._is_on = is_on
        self._channel = f"rota_{address.schema}"
        self._callbacks: list[Callable[[], None]] = []
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()  # a hint is to be given
        self._closed = threading.Event()
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._told_at = 0.0

    def give(self) -> None:
        if self._is_on and not self._wanted.is_set():
            self._wanted.set()
            self._start()
            self._stir()

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        with self._guard:
            self._callbacks.append(callback)
        if self._is_on:
            self._start()

        def stop() -> None:
            with self._guard:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return stop

    def close(self) -> None:
        self._closed.set()
        self._stir()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()
        os.close(self._awake)
        os.close(self._wake)

    def _start(self) -> None:
        with self._guard:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="rota-hints", daemon=True)
                self._thread.start()

    def _stir(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"x")

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                link = Link(self._address.url, name=APPLICATION, limit_ms=ANSWER_MS)
                link.script(f'LISTEN "{self._channel}"'.encode())
                pause_s = FIRST_PAUSE_S
                # What was told before we listened is lost: look once.
                self._call()
                self._talk(link)
            except (LinkLost, Refused) as error:
                log.info("hints interrupted", store=self._address.shown, problem=str(error))
                self._closed.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _talk(self, link: Link) -> None:
        """Listen and tell until the end, or until the connection breaks."""
        socket = link.pgconn.socket
        try:
            while not self._closed.is_set():
                ready, _, _ = select.select([socket, self._awake], [], [], self._patience_s())
                if self._awake in ready:
                    os.read(self._awake, 4_096)
                if socket in ready:
                    link.hear()
                if link.heard_others():
                    self._call()
                if self._wanted.is_set() and time.monotonic() >= self._told_at + PAUSE_S:
                    self._wanted.clear()
                    self._told_at = time.monotonic()
                    link.script(f'NOTIFY "{self._channel}"'.encode())
        finally:
            link.close()

    def _patience_s(self) -> float | None:
        if not self._wanted.is_set():
            return None
        return max(0.0, self._told_at + PAUSE_S - time.monotonic())

    def _call(self) -> None:
        with self._guard:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
