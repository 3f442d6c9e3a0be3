from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways.zeromq.dealers import Gateway, opened


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with opened(tmp_path) as running:
        yield running
