"""Peers that speak through npm's `ws`, so that our own library is not the only judge."""

import asyncio
import base64
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.serving import Api
from tests.gateways.websocket.talking import PATIENCE_S, Peer, address_of

PACKAGE = "ws@8.18.0"
FOLDER = Path(sys.prefix) / "node-peers"
RELAY = Path(__file__).with_name("relay.mjs")
INSTALL_S = 60
INSTALL_TRIES = 3


def package_folder() -> Path:
    """Where `ws` is installed; done once for all tests."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js with npm is not installed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "node_modules" / "ws" / "package.json").is_file():
            _install(npm)
    return FOLDER


def _install(npm: str) -> None:
    """The net may fail once; that a machine with npm cannot get it at all is no reason to skip."""
    command = [npm, "install", PACKAGE, "--prefix", str(FOLDER), "--ignore-scripts", "--no-save"]
    command += ["--no-audit", "--no-fund"]
    said = ""
    for _ in range(INSTALL_TRIES):
        shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=INSTALL_S, cwd=FOLDER
            )
        except subprocess.TimeoutExpired:
            said = f"it took more than {INSTALL_S} s"
        else:
            if done.returncode == 0:
                return
            said = done.stderr[-500:]
    pytest.fail(f"npm cannot install {PACKAGE}: {said}")


class NodeSocket:
    """As much of a socket as a peer needs, in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = process.stdout
        self.pid = process.pid

    async def send(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            await self._write({"binary": base64.b64encode(frame).decode()})
        else:
            await self._write({"text": frame})

    async def recv(self) -> str | bytes:
        line = await self.line()
        if "binary" in line:
            return base64.b64decode(line["binary"])
        assert "text" in line, line
        return str(line["text"])

    async def close(self) -> Any:
        await self._write({"close": 1000})
        while "closed" not in (line := await self.line()):
            pass
        return line

    async def line(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self._output.readline())

    async def _write(self, line: Any) -> None:
        self._input.write(json.dumps(line).encode() + b"\n")
        await self._input.drain()


def node_peer(
    api: Api, session: str | None = None, *protocols: str
) -> AbstractAsyncContextManager[Peer]:
    return node_peer_at(address_of(api, session), *protocols)


@asynccontextmanager
async def node_peer_at(address: str, *protocols: str) -> AsyncIterator[Peer]:
    """A peer in a process of its own."""
    folder = await asyncio.to_thread(package_folder)
    process = await asyncio.create_subprocess_exec(
        "node",
        str(RELAY),
        str(folder),
        address,
        *protocols,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    socket = NodeSocket(process)
    try:
        assert "open" in await socket.line()
        one = Peer(socket)
        one.session_id = (await one.pushed("SessionEstablished"))["payload"]["sessionId"]
        yield one
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
