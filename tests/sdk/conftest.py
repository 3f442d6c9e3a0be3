from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import Rota
from tests.sdk.serving import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as running:
        yield running


@pytest.fixture
def app(server: Server) -> Iterator[Rota]:
    """An app that speaks to the server."""
    with Rota(server.url) as one:
        yield one


@pytest.fixture(params=["websocket", "http"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How workers get their work; a test that has this runs once for each way."""
    monkeypatch.setenv("ROTA_TRANSPORT", request.param)
    return str(request.param)
