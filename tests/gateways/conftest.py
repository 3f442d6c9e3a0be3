from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways.serving import Api, served


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path) as running:
        yield running
