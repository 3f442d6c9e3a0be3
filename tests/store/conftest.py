from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.store.sqlite import SqliteDatabase
from tests.store.opened import Opened, transaction


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase(str(tmp_path / "rota.db"))
    yield opened
    opened.close()


@pytest.fixture
def store(database: SqliteDatabase) -> Iterator[Opened]:
    with transaction(database) as opened:
        yield opened
