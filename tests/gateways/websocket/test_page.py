"""Does the page on the WebSocket tell the truth?"""

import asyncio
import sys
from pathlib import Path

import pytest

from rota.gateways.websocket.session.dispatcher import ROUTES
from tests.docs.pages import ROOT, blocks
from tests.gateways.serving import Api
from tests.gateways.websocket.talking import Peer, address_of

PAGE = ROOT / "docs" / "how-to" / "talk-over-a-websocket.md"
REFERENCE = ROOT / "docs" / "reference" / "websocket.md"


@pytest.mark.slow
async def test_the_client_of_the_page_runs(api: Api, client: Peer, tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "python")
    assert "ws://127.0.0.1:7070/ws?session=shop" in block.text
    program = tmp_path / "client.py"
    program.write_text(
        block.text.replace("ws://127.0.0.1:7070/ws?session=shop", address_of(api, "shop"))
    )
    await client.register("worker-1")

    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=asyncio.subprocess.PIPE
    )
    given = await client.given()
    await client.complete(given["taskId"], "worker-1", result=given["payload"])
    said, _ = await process.communicate()

    assert said.decode().splitlines() == [
        "accepted: assigned",
        "ended: {'taskId': 'invoice-17', 'result': {'order': 17}}",
    ]


def test_the_reference_names_every_message() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [route.type for route in ROUTES if f"`{route.type}`" not in text] == []
