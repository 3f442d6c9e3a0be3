from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.store.database import Database
from tests.databases.plugin import parametrize_stores as pytest_generate_tests
from tests.databases.plugin import store_kind
from tests.databases.schemas import Store, open_store
from tests.store.opened import Opened, transaction

__all__ = ["pytest_generate_tests", "store_kind"]


@pytest.fixture
def database(store_kind: Store, tmp_path: Path) -> Iterator[Database]:
    opened = open_store(tmp_path / "rota.db")
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database) -> Iterator[Opened]:
    with transaction(database) as opened:
        yield opened
