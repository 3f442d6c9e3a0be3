"""The free space of the store's disk is measured, and warned of once."""

from pathlib import Path

from structlog.testing import capture_logs

from rota.engine.metrics.disk_watch import DiskWatch
from rota.engine.metrics.metrics import Metrics
from rota.store.sqlite.database import SqliteDatabase
from tests.engine.running import WatchedDatabase


class Disk(WatchedDatabase):
    """A store on a disk with as much free space as the test says."""

    free: int | OSError | None = None

    def disk_free_bytes(self) -> int | None:
        if isinstance(self.free, OSError):
            raise self.free
        return self.free


def test_little_space_is_warned_of_once_until_there_was_clearly_more(tmp_path: Path) -> None:
    disk, metrics = Disk(SqliteDatabase(str(tmp_path / "rota.db"))), Metrics()
    watch = DiskWatch(disk, metrics, low_bytes=1_000)
    seen = []
    with capture_logs() as log:
        for free in (2_000, 999, 500, 1_050, 900, 1_200, 900):
            disk.free = free
            watch.look()
            seen.append(metrics.is_store_disk_low)
    disk.close()

    assert seen == [False, True, True, True, True, False, True]
    assert [line["event"] for line in log] == [
        "store_disk_low",
        "store_disk_recovered",
        "store_disk_low",
    ]
    assert metrics.store_disk_free_bytes == 900


def test_a_disk_that_cannot_be_measured_is_not_low(tmp_path: Path) -> None:
    disk, metrics = Disk(SqliteDatabase(str(tmp_path / "rota.db"))), Metrics()
    disk.free = OSError("gone")

    DiskWatch(disk, metrics, low_bytes=1_000).look()
    disk.close()

    assert (metrics.store_disk_free_bytes, metrics.is_store_disk_low) == (None, False)


def test_a_file_is_on_a_disk_and_memory_is_not(tmp_path: Path) -> None:
    file, memory = SqliteDatabase(str(tmp_path / "rota.db")), SqliteDatabase(":memory:")

    assert (file.disk_free_bytes() or 0) > 0
    assert memory.disk_free_bytes() is None
    file.close()
    memory.close()
