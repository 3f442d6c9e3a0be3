from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.gateways.serving import Api, served
from tests.gateways.websocket.talking import Peer, peer


@pytest.fixture(autouse=True)
def no_mistakes() -> Iterator[None]:
    """Whatever a test does, nothing of it may be our own mistake."""
    with capture_logs() as lines:
        yield
    assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """In memory: what must outlive a process is tested with files of its own."""
    async with served(tmp_path, store="sqlite://", zmq_port=None) as running:
        yield running


@pytest.fixture
async def client(api: Api) -> AsyncIterator[Peer]:
    """A socket of a session without a name."""
    async with peer(api) as one:
        yield one


@pytest.fixture
async def alice(api: Api) -> AsyncIterator[Peer]:
    async with peer(api, "alice") as one:
        yield one


@pytest.fixture
async def bob(api: Api) -> AsyncIterator[Peer]:
    async with peer(api, "bob") as one:
        yield one
