"""A link is encrypted where the dialer is given a TLS context, and the leader's name is checked."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from rota.engine.replicas.link.frames import Abandon, Resigning
from rota.gateways.http.server.tls import ServerTls
from rota.tls import server_context
from tests.certificates import Authority
from tests.gateways.peers.linking import Leader, leading

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost`, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    assert OPENSSL is not None
    subprocess.run(
        [
            *(OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(path), "-out", f"{path}.crt"),
        ],
        check=True,
        capture_output=True,
    )
    with path.open("ab") as file:
        file.write(Path(f"{path}.crt").read_bytes())
    return path


@asynccontextmanager
async def behind_tls(leader: Leader, certificate: Path) -> AsyncIterator[int]:
    """A proxy that ends TLS before the leader; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(*leader.address)
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_link_is_opened_over_tls(tmp_path: Path, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    async with leading(tmp_path) as leader, behind_tls(leader, certificate) as port:
        leader.proxy_url = f"https://localhost:{port}"
        link, received = await leader.link(tls=trusting)
        link.send(Abandon(1))
        assert await leader.received["f1"].have(1) == [Abandon(1)]
        leader.links["f1"].send(Resigning())
        assert await received.have(1) == [Resigning()]
        link.close()
        await received.lost()
        await leader.received["f1"].lost()


async def test_a_link_is_opened_to_a_coordinator_that_serves_tls_itself(
    tmp_path: Path, authority: Authority
) -> None:
    files = authority.issue("leader")
    trusting = ssl.create_default_context(cafile=authority.ca)
    own = ServerTls(partial(server_context, files.cert, files.key))
    async with leading(tmp_path, tls=own) as leader:
        link, received = await leader.link(tls=trusting)
        link.send(Abandon(1))
        assert await leader.received["f1"].have(1) == [Abandon(1)]
        leader.links["f1"].send(Resigning())
        assert await received.have(1) == [Resigning()]
        link.close()
        await leader.received["f1"].lost()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_leader_whose_certificate_is_not_trusted_is_not_spoken_to(
    tmp_path: Path, certificate: Path, host: str
) -> None:
    cafile = None if host == "localhost" else certificate
    context = ssl.create_default_context(cafile=cafile)
    async with leading(tmp_path) as leader, behind_tls(leader, certificate) as port:
        leader.proxy_url = f"https://{host}:{port}"
        with pytest.raises(ssl.SSLCertVerificationError):
            await leader.link(tls=context)
        assert not leader.links
