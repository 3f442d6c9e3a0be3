"""A campaign: shots at a coordinator, drawn from a seed, until the time or their number is over.

Shot `index` of a transport is drawn from the seed, the transport and the index alone, so it can be
fired again by itself. Shots are fired in rounds of several at once. After each round the
coordinator has to be alive, its log without an error, and its memory within the limit.
"""

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Protocol

from tests.fuzz import http, websocket, zeromq
from tests.fuzz.http import HttpFuzzer
from tests.fuzz.target import MEBIBYTE, Address, Finding, Target, Wire
from tests.fuzz.websocket import WebSocketFuzzer
from tests.fuzz.zeromq import ZeroMqFuzzer

AT_ONCE = 16
MOST_GROWTH_BYTES = 100 * MEBIBYTE
MOST_FINDINGS = 20  # after which nothing new is to be expected
LATE_S = 10.0  # that a machine under load may be late with closing a connection
FOLDER = Path(".fuzz")


class Fuzzer(Protocol):
    name: str
    address: Address

    def shoot(self, rng: Random, wire: Wire) -> None: ...


FUZZERS: dict[str, Callable[[Target], Fuzzer]] = {
    http.NAME: HttpFuzzer,
    websocket.NAME: WebSocketFuzzer,
    zeromq.NAME: ZeroMqFuzzer,
}
ABANDONED = {
    http.NAME: http.ABANDONED,
    websocket.NAME: websocket.ABANDONED,
    zeromq.NAME: zeromq.ABANDONED,
}


@dataclass(frozen=True)
class Shot:
    """One input, and what was wrong with how it was taken; None: nothing."""

    transport: str
    seed: int
    index: int
    sent: tuple[bytes, ...]
    finding: str | None = None

    def save(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.transport}-{self.seed}-{self.index}.json"
        # One character for each byte, so that it can be read.
        sent = [one.decode("latin-1") for one in self.sent]
        path.write_text(json.dumps({"finding": self.finding, "sent": sent}, indent=1))
        return path


@dataclass
class Campaign:
    target: Target
    seed: int
    folder: Path = FOLDER
    findings: dict[str, str] = field(default_factory=dict)  # with where they were made

    def run(
        self, transport: str, *, seconds: float = 0, shots: int | None = None, first: int = 0
    ) -> int:
        """Fire, and look after the coordinator; the number of shots."""
        fuzzer = FUZZERS[transport](self.target)
        ends_at_s = time.monotonic() + seconds
        fired = 0
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for start in count(first, AT_ONCE):
                if shots is None and time.monotonic() >= ends_at_s:
                    break
                if shots is not None and fired >= shots:
                    break
                left = AT_ONCE if shots is None else min(AT_ONCE, shots - fired)
                indices = range(start, start + left)
                fired += left
                self._look(list(pool.map(lambda one: self._shot(fuzzer, one), indices)))
                if len(self.findings) >= MOST_FINDINGS:
                    break
        self._check("at the end", self.target.check_zeromq)
        return fired

    def _shot(self, fuzzer: Fuzzer, index: int) -> Shot:
        rng = Random(f"{fuzzer.name} {self.seed} {index}")
        finding = None
        with Wire(fuzzer.address) as wire:
            try:
                fuzzer.shoot(rng, wire)
            except Finding as found:
                finding = str(found)
        return Shot(fuzzer.name, self.seed, index, tuple(wire.sent), finding)

    def _look(self, fired: list[Shot]) -> None:
        for shot in fired:
            if shot.finding is not None:
                self._note(shot)
        name = f"{fired[0].transport} {fired[0].index} to {fired[-1].index}"
        if not self._check(name, self.target.check):
            for shot in fired:
                shot.save(self.folder)

    def _note(self, shot: Shot) -> None:
        path = shot.save(self.folder)
        flags = f"--only {shot.transport} --first {shot.index} --shots 1"
        again = f'make fuzz SEED={shot.seed} FUZZ="{flags}"'
        self._add(str(shot.finding), f"input: {path}\n  again: {again}")

    def _check(self, when: str, check: Callable[[], None]) -> bool:
        try:
            check()
            self.target.check_growth(MOST_GROWTH_BYTES)
        except Finding as found:
            self._add(str(found), f"found after: {when}, saved in {self.folder}")
            return False
        return True

    def _add(self, finding: str, where: str) -> None:
        """Note a finding; the same one is told once."""
        if finding not in self.findings:
            self.findings[finding] = where


# --- connections that are left alone ------------------------------------------------------------


@dataclass(frozen=True)
class Abandoned:
    name: str
    wire: Wire
    due_at_s: float


def abandon(target: Target, transports: Iterable[str]) -> list[Abandoned]:
    """Open connections that break off in the middle of something."""
    opened = []
    for transport in transports:
        address = target.zeromq if transport == zeromq.NAME else target.http
        for name, data, limit_s in ABANDONED[transport]:
            wire = Wire(address)
            if data:
                wire.send(data)
            opened.append(Abandoned(f"{transport}: {name}", wire, time.monotonic() + limit_s))
    return opened


def still_open(abandoned: Iterable[Abandoned]) -> list[str]:
    """Wait until each has been closed; those that are not when their time is over."""
    found = []
    for one in sorted(abandoned, key=lambda one: one.due_at_s):
        with one.wire as wire:
            if not wire.is_closed(one.due_at_s + LATE_S):
                found.append(f"not closed within its limit: a connection that has {one.name}")
    return found
