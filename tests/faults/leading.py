"""Who leads a scene, and how long writes have to wait while that changes."""

import time
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple

from tests.faults.callers import MAX_ATTEMPTS, PATIENCE_S, PLAIN, Caller, CallingThread, NoAnswer
from tests.faults.processes import Scene

LEASE_MS = 1_000
SHORT_LEASE = ("--leader-lease-ms", str(LEASE_MS))
PROBE_PACE_S = 0.02


class Leading(NamedTuple):
    replica: int
    epoch: int


def leader_seen_by(staged: Scene, replica: int) -> Leading:
    """The leader, as this coordinator knows it."""
    leader = ask(staged.urls[replica], "GET", "/api/system")["leader"]
    number = staged.addresses.index(leader["address"])
    return Leading(number, leader["epoch"])


def leader_of(staged: Scene) -> Leading:
    """Wait until all agree on the leader, and are ready."""
    staged.wait_all_ready()
    seen: list[Leading] = []

    def is_agreed() -> bool:
        try:
            seen[:] = [leader_seen_by(staged, replica) for replica in range(len(staged.urls))]
        except NoAnswer:
            return False
        return len({one.epoch for one in seen}) == 1

    staged.wait(is_agreed)
    return seen[0]


def next_leader(staged: Scene, after: Leading, *, seen_by: int) -> Leading:
    """Wait until this coordinator knows of another leader."""
    seen: list[Leading] = []

    def has_changed() -> bool:
        try:
            seen[:] = [leader_seen_by(staged, seen_by)]
        except NoAnswer:
            return False
        return seen[0].epoch > after.epoch

    staged.wait(has_changed)
    return seen[0]


def leads_since_ms(staged: Scene, replica: int) -> int:
    """When the current leader took over, by the clock of the store."""
    since_ms: int = ask(staged.urls[replica], "GET", "/api/system")["leader"]["since_ms"]
    return since_ms


def others(staged: Scene, replica: int) -> list[int]:
    return [one for one in range(len(staged.urls)) if one != replica]


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """Call one coordinator, and expect nothing but success."""
    caller = Caller([url])
    try:
        status, answer = caller.call(method, path, body)
    finally:
        caller.close()
    assert status in {200, 201}, answer
    return answer


class Prober(CallingThread):
    """Submits one task after the other with a key each, and notes when each was acknowledged."""

    def __init__(self, staged: Scene, urls: Sequence[str], seed: int) -> None:
        super().__init__(f"prober-{seed}", urls, staged.book)
        self._numbers = count(seed * 1_000_000)
        self._number = next(self._numbers)
        self.acknowledged: list[tuple[float, float]] = []  # when it was sent, when answered

    def step(self) -> None:
        sent_at = time.monotonic()
        number, key = self._number, f"p{self._number}"
        task = {
            "name": PLAIN,
            "payload": {"number": number},
            "key": key,
            "max_attempts": MAX_ATTEMPTS,
        }
        status, answer = self.caller.call("POST", "/api/tasks", task)
        assert status in {200, 201}, answer
        self.acknowledged.append((sent_at, time.monotonic()))
        self.book.submitted(answer["id"], number, key)
        self._number = next(self._numbers)
        self._stop_asked.wait(PROBE_PACE_S)


def start_probers(staged: Scene, *, at: Sequence[int]) -> list[Prober]:
    """A prober for each of these coordinators, which goes on to the others if need be."""
    probers = []
    for seed, replica in enumerate(at, start=100):
        others_first = [staged.urls[one] for one in (replica, *at) if one != replica]
        probers.append(Prober(staged, [staged.urls[replica], *others_first], seed))
        staged.start_caller(probers[-1])
    return probers


def wait_for_write(staged: Scene, probers: Sequence[Prober], *, sent_after: float) -> float:
    """Wait for the first acknowledged write that was sent after this moment; how long it took."""

    def times() -> list[float]:
        return [
            answered_at - sent_after
            for prober in probers
            for sent_at, answered_at in list(prober.acknowledged)
            if sent_at > sent_after
        ]

    ends_at = time.monotonic() + PATIENCE_S
    while not times():
        assert time.monotonic() < ends_at, "no write was acknowledged"
        staged.book.wait_for_more(1)
    return min(times())


def longest_gap(probers: Sequence[Prober], *, since: float) -> float:
    """The longest time without an acknowledged write, from this moment on."""
    moments = sorted(
        answered_at
        for prober in probers
        for _, answered_at in list(prober.acknowledged)
        if answered_at > since
    )
    return max(later - earlier for earlier, later in pairwise([since, *moments]))
