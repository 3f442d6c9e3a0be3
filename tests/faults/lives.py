"""One life of a coordinator on a disk: it opens, works until the power goes, and is checked."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.engine.coordinator import Coordinator
from rota.settings import Settings
from rota.store.sqlite.database import SqliteDatabase
from tests.faults.driving import Crowd
from tests.faults.ledger import Ledger
from tests.faults.power import NAME, Disk, Image

MOST_OPERATIONS = 800  # of the disk, before the cut
MOST_SYNCS = 50
MOST_STEPS = 200
CLEAN_ENDS = 0.1  # share of the lives that end in good order, unless the cut comes before
CHECKPOINTS = (4, 16, 64, 1_000)  # pages; the small ones let cuts fall into checkpoints
LOGS_BYTES = (0, 100_000)  # the length of the log before anything is in it


@contextmanager
def opened(
    disk: Disk, *, synchronous: str = "FULL", checkpoint_pages: int = 1_000, log_bytes: int = 0
) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(disk.path, vfs=disk.vfs_name, locked=False)
    try:
        database._writer.execute(f"PRAGMA synchronous = {synchronous}")
        database._writer.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        disk.roll_out_log(log_bytes)
        yield database
    finally:
        database.close()


async def started(database: SqliteDatabase, crowd: Crowd, dice: random.Random) -> Coordinator:
    """A coordinator without threads and timers: the crowd turns its clock and its duties."""
    coordinator = Coordinator(
        database, Settings(), clock=crowd.clock, dice=dice.random, inline=True
    )
    await coordinator.start()
    await coordinator.leading.duties.stop()
    crowd.coordinator = coordinator
    return coordinator


async def live(disk: Disk, crowd: Crowd, dice: random.Random, *, synchronous: str) -> None:
    """Work until the power goes, at a moment drawn beforehand, or a clean end is reached."""
    # With fewer syncs there may be none to wait for.
    if synchronous != "FULL" or dice.random() < 0.5:
        disk.cut_at = dice.randint(1, MOST_OPERATIONS)
    else:
        disk.cut_at_sync = dice.randint(1, MOST_SYNCS)
    most_steps = dice.randint(1, 20) if dice.random() < CLEAN_ENDS else MOST_STEPS
    pages = dice.choice(CHECKPOINTS)
    log_bytes = dice.choice(LOGS_BYTES)
    crowd.has_answers = lambda: not disk.is_off
    with opened(
        disk, synchronous=synchronous, checkpoint_pages=pages, log_bytes=log_bytes
    ) as database:
        coordinator = await started(database, crowd, dice)
        await crowd.resubmit()
        for _ in range(most_steps):
            if disk.is_off:
                break
            await crowd.step()
        await coordinator.stop()


def cut(
    folder: Path, crowd: Crowd, dice: random.Random, image: Image, *, synchronous: str = "FULL"
) -> Image:
    """Live on what an earlier cut has left; the answer is what the next one leaves."""
    disk = Disk(folder, dice, image)
    try:
        asyncio.run(live(disk, crowd, dice, synchronous=synchronous))
        return disk.cut()
    finally:
        disk.unregister()
        shutil.rmtree(folder)


async def drained(folder: Path, crowd: Crowd, dice: random.Random, image: Image) -> Image:
    """The power stays: all work is done, and the coordinator ends in good order."""
    disk = Disk(folder, dice, image)
    try:
        crowd.has_answers = lambda: True
        with opened(disk) as database:
            coordinator = await started(database, crowd, dice)
            await crowd.resubmit()
            await crowd.drain()
            await coordinator.stop()
        return disk.cut()
    finally:
        disk.unregister()
        shutil.rmtree(folder)


def problems(folder: Path, ledger: Ledger, image: Image) -> list[str]:
    """Open what is left as anybody would, with SQLite's own VFS, and compare."""
    folder.mkdir()
    for name, content in image.items():
        (folder / name).write_bytes(content)
    # Named and without syncs: it is only looked at, so its log need not be written out in full.
    database = SqliteDatabase(str(folder / NAME), vfs="unix")
    database._writer.execute("PRAGMA synchronous = OFF")
    try:
        return ledger.problems(database)
    finally:
        database.close()
        shutil.rmtree(folder)
