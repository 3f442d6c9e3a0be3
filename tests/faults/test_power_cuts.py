"""Does anything that was acknowledged get lost when the power goes?"""

import asyncio
import random
from pathlib import Path

import apsw
import pytest

from rota.core.tasks.model import TaskState
from rota.errors import StoreError
from rota.store import migrator
from tests.faults.driving import Crowd
from tests.faults.ledger import Ledger
from tests.faults.lives import cut, drained, opened, problems
from tests.faults.power import Disk, Image, StoredFile

CHAINS = 20
CUTS_PER_CHAIN = 20
CONTROL_CUTS = 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CHAINS))
def test_what_was_acknowledged_survives_every_power_cut(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    crowd = Crowd(dice, Ledger())
    image: Image = {}

    for number in range(CUTS_PER_CHAIN):
        image = cut(tmp_path / f"life-{number}", crowd, dice, image)

        assert problems(tmp_path / f"left-{number}", crowd.ledger, image) == []

    image = asyncio.run(drained(tmp_path / "last", crowd, dice, image))
    assert problems(tmp_path / "end", crowd.ledger, image) == []
    assert TaskState.SUCCEEDED in {state for state, _ in crowd.ledger.ends.values()}


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_with_fewer_syncs_the_same_cuts_do_lose_what_was_acknowledged(
    tmp_path: Path, synchronous: str
) -> None:
    losses = 0

    for seed in range(CONTROL_CUTS):
        dice = random.Random(seed)
        crowd = Crowd(dice, Ledger())
        image = cut(tmp_path / f"life-{seed}", crowd, dice, {}, synchronous=synchronous)
        try:
            losses += bool(problems(tmp_path / f"left-{seed}", crowd.ledger, image))
        except (StoreError, apsw.Error):
            losses += 1

    assert losses >= CONTROL_CUTS // 10


@pytest.mark.slow
def test_a_cut_at_any_moment_of_the_first_start_leaves_a_store_that_starts(tmp_path: Path) -> None:
    operations, is_off = 0, True

    while is_off:
        operations += 1
        disk = Disk(tmp_path / f"first-{operations}", random.Random(operations))
        disk.cut_at = operations
        with opened(disk):
            pass
        is_off = disk.is_off
        image = disk.cut()
        disk.unregister()

        again = Disk(tmp_path / f"again-{operations}", random.Random(operations), image)
        with opened(again) as database:
            assert database.migrated[1] == migrator.newest_version()
        again.unregister()
        assert problems(tmp_path / f"left-{operations}", Ledger(), again.cut()) == []

    assert operations > 50


def test_a_cut_keeps_what_was_synced_and_only_that_for_certain() -> None:
    stored = StoredFile()
    stored.change((0, b"a" * 2_000))
    stored.sync()
    stored.change((1_000, b"b" * 2_000))
    stored.change(500)

    left = {stored.after_cut(random.Random(seed)) for seed in range(200)}

    assert all(content[:500] == b"a" * 500 for content in left)
    assert {500, 2_000, 3_000} <= {len(content) for content in left}
    assert b"a" * 2_000 in left  # nothing of the rest
    assert b"a" * 1_000 + b"b" * 2_000 in left  # the older part of it
    assert any(b"a" in content[1_000:] and b"b" in content for content in left)  # torn


def test_a_file_whose_name_was_never_synced_may_be_gone(tmp_path: Path) -> None:
    found: set[bool] = set()

    for seed in range(20):
        disk = Disk(tmp_path / str(seed), random.Random(seed))
        connection = apsw.Connection(disk.path, vfs=disk.vfs_name)
        connection.execute("PRAGMA synchronous = OFF; CREATE TABLE t (x)")
        found.add(bool(disk.cut()))
        connection.close()
        disk.unregister()

    assert found == {False, True}
