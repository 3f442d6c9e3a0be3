"""Would the checks of the other tests notice a loss? Each kind of damage is done on purpose."""

import random
from pathlib import Path

import pytest

from rota.core.ids import TaskId
from rota.core.tasks.model import TaskState
from rota.store.sqlite.database import SqliteDatabase
from tests.faults.driving import Crowd
from tests.faults.ledger import Ledger
from tests.faults.lives import opened, started
from tests.faults.power import Disk

ONE, TWO = TaskId(1), TaskId(2)


@pytest.fixture
async def crowd(tmp_path: Path) -> Crowd:
    """Callers of a coordinator that has worked for a while, without a fault."""
    dice = random.Random(1)
    crowd = Crowd(dice, Ledger())
    crowd.has_answers = lambda: True
    disk = Disk(tmp_path / "disk", dice)
    with opened(disk) as database:
        coordinator = await started(database, crowd, dice)
        for _ in range(40):
            await crowd.step()
        await coordinator.stop()
    disk.unregister()
    return crowd


@pytest.mark.parametrize(
    ("damage", "noticed"),
    [
        ("SELECT 1", None),
        ("DELETE FROM history WHERE id = (SELECT max(id) FROM history)", "is lost"),
        ("UPDATE history SET result = '0' WHERE state = 'succeeded'", "is succeeded with"),
        ("UPDATE history SET state = 'failed' WHERE state = 'succeeded'", "is failed with"),
        ("UPDATE history SET payload = 'null'", "has another payload"),
        ("UPDATE history SET fence = 0", "has fence 0, below"),
        ("DELETE FROM ready WHERE id = (SELECT max(id) FROM ready)", "is found by"),
        ("DELETE FROM task WHERE id = (SELECT max(id) FROM ready)", "is found by"),
        ("INSERT INTO scheduled SELECT 1, id, 0, 0 FROM ready LIMIT 1", "is found by"),
        ("DELETE FROM task_key", "no longer leads to"),
        ("UPDATE task SET key = 'same'", "is found by"),
        ("DELETE FROM lane", "is found by"),
    ],
)
async def test_damage_is_noticed(
    tmp_path: Path, crowd: Crowd, damage: str, noticed: str | None
) -> None:
    database = SqliteDatabase(str(tmp_path / "disk" / "rota.db"), vfs="unix")

    database._writer.execute(damage)

    found = crowd.ledger.problems(database)
    database.close()
    assert bool(found) == (noticed is not None)
    assert all(noticed in sentence for sentence in found if noticed is not None)


def test_answers_that_contradict_each_other_are_noticed() -> None:
    ledger = Ledger()
    ledger.submitted(ONE, b"null", "key")
    ledger.leased(ONE, 2)
    ledger.finished(ONE, TaskState.SUCCEEDED, b"1")
    assert ledger.broken == []

    ledger.submitted(TWO, b"null", "key")
    ledger.leased(ONE, 2)
    ledger.finished(ONE, TaskState.SUCCEEDED, b"1")
    ledger.confirmed(ONE, TaskState.SUCCEEDED, b"2")
    ledger.registered(5)
    ledger.registered(5)

    assert len(ledger.broken) == 6
