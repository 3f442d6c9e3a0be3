"""Anything may happen, in any order: the promises hold, and when it ends, all comes to rest.

Every event is checked by `Drive.feed`: one owner, epochs and generations that only rise, nobody
told what it is to give up, and a store that would give back the same service.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rota.core.shards.allocation import MemberShare, shares_of
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL, ShardPolicy
from tests.core.shards.driving import Drive

OFTEN = ("register", "beat", "beat", "sweep")
WHAT = (*OFTEN, *OFTEN, "sweep", "leave", "drain", "undrain", "configure", "restart")
WORKERS = ("w1", "w2", "w3", "w4")
COUNTS = (3, 7, 8)
STEPS_MS = (0, 0, 1, 60, 500, 500, 1_000, 5_000, 16_000, 40_000, -3_000)

happenings = st.tuples(
    st.sampled_from(WHAT),
    st.sampled_from(WORKERS),
    st.integers(0, 2**16 - 1),  # everything else, in a few bits each
    st.sampled_from(STEPS_MS),
)


class Dice:
    def __init__(self, bits: int) -> None:
        self.bits = bits

    def choose(self, choices: Sequence[Any]) -> Any:
        self.bits, chosen = divmod(self.bits, len(choices))
        return choices[chosen]


class Story:
    def __init__(self, policy: ShardPolicy) -> None:
        self.drive = Drive(policy, shard_count=COUNTS[1])

    def happen(self, what: str, worker_id: str, bits: int, step_ms: int) -> None:
        drive, dice = self.drive, Dice(bits)
        drive.now_ms += step_ms
        match what:
            case "register":
                weight = dice.choose([1_000, 2_000])
                most = dice.choose([None, None, 2])
                drive.register(worker_id, weight=weight, max_shards=most, **self.spoken(dice))
            case "beat":
                drive.beat(worker_id, **self.heard(worker_id, dice), **self.spoken(dice))
            case "leave":
                drive.leave(worker_id, dice.choose([None, "1", "2"]))
            case "drain" | "undrain" if worker_id in drive.service.members:
                drive.drain(worker_id, draining=what == "drain")
            case "configure":
                drive.configure(
                    shard_count=dice.choose([None, *COUNTS]),
                    pinned=dice.choose([None, True, False]),
                    min_protocol=dice.choose([None, None, OLD_PROTOCOL, PROTOCOL]),
                )
            case "restart" if drive.rows.service is not None:
                drive.restart()
            case _:
                drive.sweep()

    def spoken(self, dice: Dice) -> dict[str, Any]:
        incarnation = dice.choose([None, None, None, "", "1", "2", "a"])
        said = {"shard_count": dice.choose(COUNTS), "seq": dice.choose([None, None, 1, 5])}
        if incarnation is None:  # as it did before
            return said
        protocol = PROTOCOL if incarnation else OLD_PROTOCOL
        return said | {"protocol": protocol, "incarnation": incarnation}

    def heard(self, worker_id: str, dice: Dice) -> dict[str, Any]:
        service = self.drive.service
        told, revoked = service.assigned_to(worker_id)[0], service.revoked_from(worker_id)
        holds = dice.choose([told, (*told, *revoked), told[1:], (), (0, 1, 8)])
        newest = service.generation
        generation = dice.choose([newest, newest, None, newest - 1, newest + 5])
        draining = dice.choose([False, False, False, True])
        return {"holds": holds, "generation": generation, "draining": draining}


policies = st.sampled_from(
    [
        ShardPolicy(),
        ShardPolicy(when_stuck="force", stuck_ms=1_000),
        ShardPolicy(stuck_ms=1_000),
    ]
)


@given(policies, st.lists(happenings, max_size=60))
def test_the_promises_hold_whatever_happens(
    policy: ShardPolicy, story: list[tuple[str, str, int, int]]
) -> None:
    told = Story(policy)

    for what, worker_id, bits, step_ms in story:
        told.happen(what, worker_id, bits, step_ms)


@given(policies, st.lists(happenings, max_size=30))
def test_when_nothing_more_happens_all_is_owned_and_balanced(
    policy: ShardPolicy, story: list[tuple[str, str, int, int]]
) -> None:
    told = Story(policy)
    drive = told.drive
    for what, worker_id, bits, step_ms in story:
        told.happen(what, worker_id, bits, step_ms)

    living = sorted(drive.service.members)
    for _ in range(40):
        drive.now_ms += 2 * policy.sweep_ms
        for worker_id in living:
            if worker_id in drive.service.members:
                drive.beat(worker_id)
        drive.sweep()

    service = drive.service
    assert not service.revoking
    assert service.rebalance_at_ms is None
    assert service.owners == service.targets
    claims = [
        MemberShare(member.worker_id, member.weight, member.max_shards)
        for member in service.members.values()
        if not member.draining
    ]
    assert {worker_id: len(shards) for worker_id, shards in service.targeted.items()} == {
        worker_id: seats
        for worker_id, seats in shares_of(service.shard_count, claims, service.targeted).items()
        if seats
    }
    assert all(member.fenced is None for member in service.members.values())


TAKEN_OVER_AND_ASKED_BACK = [
    ("register", "w1", 0, 0),
    ("register", "w2", 5898, 0),
    ("register", "w1", 0, 60),
    ("drain", "w2", 0, 0),
    ("register", "w1", 0, 60),
    ("undrain", "w2", 0, 0),
    ("beat", "w2", 1175, 60),
]


@given(st.lists(happenings, max_size=30), st.integers(0, 20_000))
@example(TAKEN_OVER_AND_ASKED_BACK, 0)
def test_nothing_is_to_be_done_before_the_next_moment(
    story: list[tuple[str, str, int, int]], early_ms: int
) -> None:
    told = Story(ShardPolicy())
    drive = told.drive
    for what, worker_id, bits, step_ms in story:
        told.happen(what, worker_id, bits, step_ms)
    drive.sweep()
    moment_ms = drive.next_moment_ms()
    if moment_ms is None:
        moment_ms = drive.now_ms + 1_000_000
    assert moment_ms > drive.now_ms

    drive.service.swept_ms = drive.now_ms = max(drive.now_ms, moment_ms - 1 - early_ms)
    drive.sweep()

    assert drive.decisions == []
    assert drive.changed == set()
