from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.locks import (
    AcquireLock,
    LeaveLockQueue,
    LockAnswer,
    LockState,
    Numbers,
    ReleaseLock,
    RenewLock,
    acquire,
    answer,
    leave_queue,
    next_moment_ms,
    release,
    renew,
    settled,
)
from rota.errors import LockLost, TooMany

KEPT_MS = limits.LOCK_PLACE_KEPT_MS
TTL_MS = 30_000
WAIT_MS = 10_000


class Desk:
    """One lock, and everybody who comes for it, at a time that is turned by hand."""

    def __init__(self) -> None:
        self.lock = LockState(name="door")
        self.numbers = Numbers(0)
        self.now_ms = 1_000_000

    def acquire(self, owner: str, *, ttl_ms: int = TTL_MS, wait_ms: int = WAIT_MS) -> LockAnswer:
        event = AcquireLock(name="door", owner=owner, ttl_ms=ttl_ms, wait_ms=wait_ms)
        return self._turn(acquire(self.lock, event, self.numbers, now_ms=self.now_ms))

    def renew(self, owner: str, fence: int | None, ttl_ms: int | None = None) -> LockAnswer:
        event = RenewLock(name="door", owner=owner, fence=fence or 0, ttl_ms=ttl_ms)
        return self._turn(renew(self.lock, event, self.numbers, now_ms=self.now_ms))

    def release(self, owner: str, fence: int | None) -> LockAnswer:
        event = ReleaseLock(name="door", owner=owner, fence=fence or 0)
        return self._turn(release(self.lock, event, self.numbers, now_ms=self.now_ms))

    def leave(self, asked: LockAnswer, *, is_gone: bool = True) -> LockAnswer:
        """The call that was answered so waits no longer."""
        assert asked.asked is not None
        event = LeaveLockQueue(name="door", owner=asked.owner, asked=asked.asked, is_gone=is_gone)
        return self._turn(leave_queue(self.lock, event, self.numbers, now_ms=self.now_ms))

    def pass_by(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    def sweep(self) -> None:
        self.lock = settled(self.lock, self.numbers, now_ms=self.now_ms)

    @property
    def line(self) -> list[str]:
        return [one.owner for one in self.lock.waiters]

    def _turn(self, turned: tuple[LockState, LockAnswer]) -> LockAnswer:
        self.lock, said = turned
        return said


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- having it ----------------------------------------------------------------------------------


def test_a_free_lock_is_had_at_once(desk: Desk) -> None:
    had = desk.acquire("ann", wait_ms=0)

    assert had.acquired
    assert had.fence == desk.lock.fence > 0
    assert (had.holder, had.expires_at_ms) == ("ann", desk.now_ms + TTL_MS)
    assert had.position is None


def test_whoever_does_not_wait_hears_who_has_it(desk: Desk) -> None:
    had = desk.acquire("ann")

    refused = desk.acquire("bob", wait_ms=0)

    assert not refused.acquired
    assert (refused.fence, refused.asked, refused.position) == (None, None, None)
    assert (refused.holder, refused.expires_at_ms) == ("ann", had.expires_at_ms)
    assert desk.line == []


def test_asking_again_for_what_one_has_gives_the_same_fence_and_more_time(desk: Desk) -> None:
    first = desk.acquire("ann")
    desk.pass_by(10_000)

    again = desk.acquire("ann")
    shorter = desk.acquire("ann", ttl_ms=1)

    assert first.fence == again.fence == shorter.fence
    assert again.expires_at_ms == shorter.expires_at_ms == desk.now_ms + TTL_MS


def test_renewing_counts_from_now_and_may_change_how_long(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    desk.pass_by(20_000)

    assert desk.renew("ann", fence).expires_at_ms == desk.now_ms + TTL_MS
    assert desk.renew("ann", fence, ttl_ms=5).expires_at_ms == desk.now_ms + 5
    assert desk.renew("ann", fence).expires_at_ms == desk.now_ms + 5


def test_a_released_lock_is_free_and_its_next_fence_is_higher(desk: Desk) -> None:
    first = desk.acquire("ann")

    let_go = desk.release("ann", first.fence)
    second = desk.acquire("ann")

    assert (let_go.acquired, let_go.holder, let_go.expires_at_ms) == (False, None, None)
    assert (second.fence or 0) > (first.fence or 0)


def test_only_its_owner_under_its_fence_renews_or_releases(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    assert fence is not None

    for owner, wrong in (("bob", fence), ("ann", fence - 1), ("ann", fence + 1)):
        with pytest.raises(LockLost) as refused:
            desk.renew(owner, wrong)
        with pytest.raises(LockLost):
            desk.release(owner, wrong)
        assert refused.value.facts == {"lock": "door", "owner": owner, "fence": wrong}
    assert desk.acquire("ann").fence == fence


def test_what_was_lost_is_not_had_back_by_renewing(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    desk.pass_by(TTL_MS - 1)
    desk.renew("ann", fence)
    desk.pass_by(TTL_MS)

    for late in (desk.renew, desk.release):
        with pytest.raises(LockLost):
            late("ann", fence)

    assert (desk.acquire("ann").fence or 0) > (fence or 0)


# --- in line ------------------------------------------------------------------------------------


def test_a_lock_goes_to_those_in_line_in_the_order_they_came(desk: Desk) -> None:
    owner, fence = "ann", desk.acquire("ann").fence
    places = [desk.acquire(one).position for one in ("bob", "cat", "dan")]

    had = []
    while owner:
        owner = desk.release(owner, fence).holder or ""
        fence = desk.lock.fence
        had.append(owner)

    assert places == [1, 2, 3]
    assert had == ["bob", "cat", "dan", ""]


def test_when_its_time_is_over_a_lock_goes_to_the_next_for_its_own_time(desk: Desk) -> None:
    first = desk.acquire("ann", ttl_ms=5_000)
    desk.acquire("bob", ttl_ms=7_000)
    desk.pass_by(5_000)

    desk.sweep()

    assert desk.lock.owner == "bob"
    assert desk.lock.expires_at_ms == desk.now_ms + 7_000
    assert desk.lock.fence > (first.fence or 0)
    with pytest.raises(LockLost):
        desk.renew("ann", first.fence)


def test_a_newcomer_does_not_pass_those_in_line(desk: Desk) -> None:
    desk.acquire("ann", ttl_ms=5_000)
    desk.acquire("bob")
    desk.pass_by(5_000)

    late = desk.acquire("cat")

    assert (late.holder, late.position) == ("bob", 1)


def test_asking_again_keeps_the_place_and_the_newest_wish_counts(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    first = desk.acquire("bob", ttl_ms=1)
    desk.acquire("cat")
    desk.pass_by(WAIT_MS - 1)

    again = desk.acquire("bob", ttl_ms=9_000)
    desk.pass_by(WAIT_MS - 1)
    desk.release("ann", fence)

    assert (first.position, again.position) == (1, 1)
    assert (again.asked or 0) > (first.asked or 0)
    assert (desk.lock.owner, desk.lock.expires_at_ms) == ("bob", desk.now_ms + 9_000)


def test_a_lock_is_given_to_nobody_whose_wait_is_over(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    desk.acquire("bob", wait_ms=1_000)
    desk.acquire("cat", wait_ms=2_000)
    desk.pass_by(1_000)

    assert desk.release("ann", fence).holder == "cat"
    assert desk.line == ["bob"]


def test_the_place_of_one_that_is_away_for_a_moment_is_kept(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    asked = desk.acquire("bob")
    desk.acquire("cat", wait_ms=60_000)
    desk.pass_by(WAIT_MS)
    answered = desk.leave(asked, is_gone=False)
    desk.pass_by(KEPT_MS - 1)

    again = desk.acquire("bob")

    assert (answered.acquired, answered.position) == (False, 1)
    assert again.position == 1
    assert desk.release("ann", fence).holder == "bob"


def test_a_place_is_not_kept_for_ever(desk: Desk) -> None:
    desk.acquire("ann", ttl_ms=60_000)
    asked = desk.acquire("bob")
    desk.acquire("cat", wait_ms=60_000)
    desk.leave(asked)
    desk.pass_by(KEPT_MS)

    assert desk.acquire("bob").position == 2


def test_one_that_is_away_holds_nobody_up(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    desk.leave(desk.acquire("bob"))

    desk.release("ann", fence)
    newcomer = desk.acquire("cat", wait_ms=0)

    assert newcomer.acquired
    assert desk.line == ["bob"]
    assert desk.acquire("bob").position == 1


def test_one_that_comes_back_to_a_free_lock_has_it_and_is_in_line_no_more(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    desk.leave(desk.acquire("bob"))
    desk.release("ann", fence)

    assert desk.acquire("bob").acquired
    assert desk.line == []


def test_a_line_has_an_end_but_not_for_those_who_stand_in_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LOCK_WAITERS", 2)
    desk.acquire("ann")
    desk.acquire("bob")
    desk.acquire("cat")

    with pytest.raises(TooMany, match="2 callers already wait for lock 'door'"):
        desk.acquire("dan")

    assert not desk.acquire("dan", wait_ms=0).acquired
    assert desk.acquire("cat").position == 2


# --- calls that end without it --------------------------------------------------------------------


def test_one_that_is_gone_lets_go_of_what_it_got_unheard(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    asked = desk.acquire("bob")
    desk.acquire("cat")
    desk.release("ann", fence)
    assert desk.lock.owner == "bob"

    said = desk.leave(asked)

    assert (said.acquired, said.holder) == (False, "cat")


def test_one_that_is_still_there_when_its_wait_ends_keeps_what_it_just_got(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    asked = desk.acquire("bob")
    desk.release("ann", fence)

    said = desk.leave(asked, is_gone=False)

    assert said.acquired
    assert said.fence == desk.lock.fence


def test_a_call_that_ends_does_not_take_away_the_place_of_a_newer_one(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    first = desk.acquire("bob")
    second = desk.acquire("bob")

    desk.leave(first)

    assert desk.release("ann", fence).holder == "bob"
    assert desk.lock.asked == second.asked


def test_a_call_that_ends_does_not_take_away_what_a_newer_one_has_heard_of(desk: Desk) -> None:
    fence = desk.acquire("ann").fence
    first = desk.acquire("bob")
    desk.release("ann", fence)
    second = desk.acquire("bob")

    desk.leave(first)

    assert second.acquired
    assert desk.lock.owner == "bob"
    assert desk.renew("bob", second.fence).acquired


def test_a_call_that_got_it_at_once_can_be_undone(desk: Desk) -> None:
    had = desk.acquire("ann")

    desk.leave(had)

    assert desk.lock.owner is None


def test_a_call_that_ends_twice_ends_once(desk: Desk) -> None:
    desk.acquire("ann")
    asked = desk.acquire("bob")
    desk.leave(asked)
    before = desk.lock

    desk.leave(asked)

    assert desk.lock == before


# --- when time changes something ----------------------------------------------------------------


def test_the_next_moment_is_when_the_owners_time_or_the_last_place_is_over(desk: Desk) -> None:
    assert next_moment_ms(desk.lock) is None
    fence = desk.acquire("ann").fence
    assert next_moment_ms(desk.lock) == desk.now_ms + TTL_MS
    desk.leave(desk.acquire("bob"))
    desk.release("ann", fence)
    assert next_moment_ms(desk.lock) == desk.now_ms + KEPT_MS

    desk.pass_by(KEPT_MS)
    desk.sweep()

    assert next_moment_ms(desk.lock) is None


def test_settling_what_is_settled_changes_nothing(desk: Desk) -> None:
    for _ in range(2):
        desk.sweep()
        assert desk.lock == LockState(name="door")
    desk.acquire("ann")
    before = desk.lock

    desk.sweep()

    assert desk.lock is before


# --- in any order -------------------------------------------------------------------------------

OWNERS = ["ann", "bob", "cat"]
Steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "wait", "renew", "release", "leave", "time out", "sweep"]),
        st.sampled_from(OWNERS),
        st.integers(0, 3),  # which of its earlier answers is meant, from the newest
        st.sampled_from([0, 1, 400, 1_000, KEPT_MS, 6_000]),  # how much time passes
    ),
    max_size=80,
)


class Witness:
    """Holds what happens at a desk against what was promised."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.answers: dict[str, list[LockAnswer]] = {owner: [] for owner in OWNERS}
        self.fences: dict[int, str] = {}  # who had which
        self.highest = 0

    def step(self, kind: str, owner: str, back: int, passed_ms: int) -> None:
        desk = self.desk
        desk.pass_by(passed_ms)
        before = desk.lock
        try:
            self._carry_out(kind, owner, back)
        except LockLost:
            assert desk.lock is before
        self._check(before)

    def _carry_out(self, kind: str, owner: str, back: int) -> None:
        desk, known = self.desk, self.answers[owner]
        earlier = known[-1 - back] if back < len(known) else None
        match kind:
            case "ask":
                known.append(desk.acquire(owner, ttl_ms=1_000, wait_ms=0))
            case "wait":
                known.append(desk.acquire(owner, ttl_ms=1_000, wait_ms=2_000))
            case "sweep":
                desk.sweep()
            case "renew" if earlier is not None:
                assert desk.renew(owner, earlier.fence).fence == earlier.fence
            case "release" if earlier is not None:
                desk.release(owner, earlier.fence)
                assert desk.lock.owner != owner
            case "leave" | "time out" if earlier is not None and earlier.asked is not None:
                is_newest = all((one.asked or 0) <= earlier.asked for one in known)
                was = desk.lock
                said = desk.leave(earlier, is_gone=kind == "leave")
                if not is_newest and was.owner == owner and was.expires_at_ms > desk.now_ms:
                    assert said.acquired, "an older call took away what a newer one has"

    def _check(self, before: LockState) -> None:
        lock, now_ms = self.desk.lock, self.desk.now_ms
        if lock.owner is not None:
            assert self.fences.setdefault(lock.fence, lock.owner) == lock.owner
            self.highest = max(self.highest, lock.fence)
            assert lock.fence == self.highest, "fences only rise"
        if lock.owner is not None and lock.fence != before.fence and before.owner is not None:
            # It has changed hands: the first caller in line that was there has it.
            present = [one for one in before.waiters if one.until_ms > now_ms]
            assert not present or lock.owner == present[0].owner
        tickets = [one.ticket for one in lock.waiters]
        assert tickets == sorted(set(tickets))
        assert len({one.owner for one in lock.waiters}) == len(tickets)
        assert lock.owner not in self.desk.line
        stranger = answer(lock, "nobody")
        assert (stranger.acquired, stranger.fence, stranger.position) == (False, None, None)


@given(Steps)
def test_a_fence_has_one_owner_and_lines_keep_their_order_whatever_happens(
    steps: list[tuple[str, str, int, int]],
) -> None:
    witness = Witness()

    for step in steps:
        witness.step(*step)


@given(Steps)
def test_a_lock_that_nobody_cares_for_is_forgotten_in_the_end(
    steps: list[tuple[str, str, int, int]],
) -> None:
    witness = Witness()
    for step in steps:
        witness.step(*step)
    desk = witness.desk

    for _ in range(len(OWNERS) + 1):
        moment_ms: Any = next_moment_ms(desk.lock)
        if moment_ms is not None:
            assert moment_ms > desk.now_ms or desk.lock.expires_at_ms <= desk.now_ms
            desk.now_ms = max(desk.now_ms, moment_ms)
            desk.sweep()

    assert next_moment_ms(desk.lock) is None
    assert (desk.lock.owner, desk.lock.waiters) == (None, ())
