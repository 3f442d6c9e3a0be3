"""How long a batch of the leader waits for the commands of followers."""

from typing import Any

import pytest

from rota.core.commands import QueueDueTasks, SubmitTasks
from rota.core.tasks.model import NewTask
from rota.engine.commit.pacing import (
    AT_ONCE,
    FEWEST_COMMANDS,
    MOST_WAIT_S,
    WAIT_SHARE,
    BatchPacing,
)
from rota.engine.commit.request import QueuedCommand

NOBODY: Any = None
BATCH_S = 0.002


def commands(count: int, *, of_followers: int = 1, command: Any = None) -> list[QueuedCommand]:
    entries = [
        QueuedCommand(command or SubmitTasks([NewTask(name="work")]), NOBODY) for _ in range(count)
    ]
    for entry in entries[:of_followers]:
        entry.is_of_follower = True
    return entries


def paced(*batches: list[QueuedCommand], batch_s: float = BATCH_S) -> BatchPacing:
    """The pacing after these batches, the last of which has ended at 0."""
    pacing = BatchPacing()
    for entries in batches:
        pacing.note(entries, begun_s=-batch_s, ended_s=0.0)
    return pacing


def test_a_batch_waits_for_as_many_commands_as_the_last_two_had_on_average() -> None:
    assert paced(commands(8), commands(16)).gathering(now_s=0.0).commands == 12


def test_fewer_are_awaited_as_soon_as_callers_stay_away() -> None:
    pacing = paced(commands(16), commands(16), commands(6), commands(6))

    assert pacing.gathering(now_s=0.0).commands == 6


def test_a_batch_waits_for_a_fraction_of_what_a_batch_takes() -> None:
    wanted = paced(commands(8), commands(8)).gathering(now_s=0.0)

    assert wanted.within_s == pytest.approx(BATCH_S * WAIT_SHARE)


def test_a_wait_has_a_limit_however_long_batches_take() -> None:
    pacing = paced(commands(8), commands(8), batch_s=10.0)

    assert pacing.gathering(now_s=0.0).within_s == MOST_WAIT_S


@pytest.mark.parametrize(
    "last",
    [
        commands(8, of_followers=0),
        commands(FEWEST_COMMANDS - 1),
        commands(8, command=QueueDueTasks()),
    ],
    ids=["no command of a follower", "few commands", "commands that take long"],
)
def test_no_batch_waits_after_one_that_tells_nothing_of_followers(
    last: list[QueuedCommand],
) -> None:
    assert paced(commands(8), last).gathering(now_s=0.0) == AT_ONCE


def test_no_batch_waits_for_callers_of_long_ago() -> None:
    pacing = paced(commands(8), commands(8))

    assert pacing.gathering(now_s=BATCH_S).commands > 0
    assert pacing.gathering(now_s=BATCH_S * 2.1) == AT_ONCE


def test_the_first_batch_waits_for_nothing() -> None:
    assert BatchPacing().gathering(now_s=100.0) == AT_ONCE
