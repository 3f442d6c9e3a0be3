from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import TurnedClock
from tests.engine.running import Engine, running


@pytest.fixture
async def engine(tmp_path: Path, clock: TurnedClock) -> AsyncIterator[Engine]:
    async with running(tmp_path / "rota.db", clock) as started:
        yield started
