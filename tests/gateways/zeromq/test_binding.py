"""The address of the gateway, also when its port is taken."""

import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.errors import Invalid, Unavailable
from rota.gateways.zeromq import binding
from tests.gateways.serving import served
from tests.gateways.zeromq.dealers import EVERYTHING, assigned, opened, register


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "[::1]")]
)
async def test_it_listens_where_it_is_told(tmp_path: Path, host: str, shown: str) -> None:
    async with opened(tmp_path, zmq_host=host) as gateway:
        assert gateway.url.rpartition(":")[0] == f"tcp://{shown}"
        client = gateway.connect(ipv6=host == "::1")
        assert await client.ask(register("w")) == assigned(EVERYTHING)


async def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(Unavailable, match=f"port {port}.*--zmq-port"):
            async with served(tmp_path, zmq_port=port):
                pass

    async with served(tmp_path, zmq_port=port):  # nothing was left behind
        pass


async def test_when_nobody_asked_and_the_usual_port_is_taken_there_is_no_zeromq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as logged:
        monkeypatch.setattr(binding, "DEFAULT_PORT", taken.getsockname()[1])

        async with served(tmp_path, zmq_port=None) as api:
            assert api.node.shards_url is None
            assert (await api.get("/health")).status_code == 200

    assert any(
        (one["event"], one.get("reason")) == ("zeromq_disabled", "its port is taken")
        for one in logged
    )


async def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not an address to listen on"):
        async with served(tmp_path, zmq_host="x" * 64, insecure=True):
            pass
