from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import TurnedClock
from tests.databases.plugin import parametrize_stores as pytest_generate_tests
from tests.databases.plugin import store_kind
from tests.databases.schemas import Store
from tests.engine.running import Engine, running

__all__ = ["pytest_generate_tests", "store_kind"]


@pytest.fixture
async def engine(store_kind: Store, tmp_path: Path, clock: TurnedClock) -> AsyncIterator[Engine]:
    async with running(tmp_path / "rota.db", clock) as started:
        yield started
