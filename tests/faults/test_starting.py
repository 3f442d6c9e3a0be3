"""A coordinator that cannot start says so."""

from pathlib import Path

import pytest

from rota.errors import StoreDiskFull, StoreFull
from rota.node import Node
from rota.settings import Settings
from rota.store.sqlite.database import SqliteDatabase
from tests.engine.running import WatchedDatabase


async def test_a_start_that_a_full_disk_ends_does_not_speak_of_a_coordinator_that_goes_on(
    tmp_path: Path,
) -> None:
    database = WatchedDatabase(SqliteDatabase(f"{tmp_path}/rota.db"))
    node = Node(Settings(store=f"sqlite:///{tmp_path}/rota.db"), inline=True, database=database)
    database.write_problem = StoreFull()

    with pytest.raises(StoreDiskFull, match="no coordinator starts on it") as refusal:
        await node.start()

    assert "then start again" in refusal.value.detail
    database.close()
