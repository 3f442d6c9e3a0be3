"""Reads definitions for the gateways without blocking the event loop.

YAML is read by Python code, which keeps other threads from running. A small definition is read on a
thread all the same, one at a time: it takes a few milliseconds. A large one is read by a process
that is started for it and ended after it, or killed when it takes too long. Nothing is started
before it is needed, and nothing is left behind.
"""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import nullcontext
from typing import Any

import msgspec
import structlog

from rota.core import limits
from rota.core.workflow.definition.model import DefinitionProblem
from rota.errors import TooLarge, TooMany
from rota.gateways.definitions.checking import Checked, Text, check

log = structlog.get_logger("rota.definitions")

CHILD = "rota.gateways.definitions.checking"


class _Share:
    """The definitions of one token that are being read, one large one at a time."""

    __slots__ = ("count", "turn")

    def __init__(self) -> None:
        self.count = 0
        self.turn = asyncio.Lock()


class DefinitionReader:
    def __init__(self, timeout_ms: int = limits.DEFINITION_TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._waiting = 0
        self._threads = asyncio.Semaphore(1)
        self._processes = asyncio.Semaphore(limits.MAX_DEFINITION_PROCESSES)
        self._shares: dict[str | None, _Share] = {}  # of the tokens that have something read

    async def read(
        self, content: str, name: str | None = None, *, token_id: str | None = None
    ) -> Checked:
        """Read a definition; refused when it is too large, or when too many wait to be read."""
        size = len(content.encode())
        if size > limits.MAX_DEFINITION_BYTES:
            most = limits.MAX_DEFINITION_BYTES
            raise TooLarge(f"the definition is over {most} bytes", limit=most)
        share = self._shares.get(token_id) or _Share()
        if self._waiting >= limits.MAX_DEFINITIONS_WAITING:
            raise _too_many(limits.MAX_DEFINITIONS_WAITING, "definitions are already being read")
        if token_id is not None and share.count >= limits.MAX_DEFINITIONS_PER_TOKEN:
            raise _too_many(
                limits.MAX_DEFINITIONS_PER_TOKEN, "definitions of this token are already being read"
            )
        self._shares[token_id] = share
        self._waiting += 1
        share.count += 1
        try:
            return await self._read(Text(content, name), size, share if token_id else None)
        finally:
            self._waiting -= 1
            share.count -= 1
            if not share.count:
                del self._shares[token_id]

    async def _read(self, text: Text, size: int, share: _Share | None) -> Checked:
        if size <= limits.MAX_INLINE_DEFINITION_BYTES or not _has_processes():
            async with self._threads:
                return await asyncio.to_thread(check, text)
        # The second process stays free for other tokens.
        async with share.turn if share is not None else nullcontext(), self._processes:
            return await self._read_apart(text)

    async def _read_apart(self, text: Text) -> Checked:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing is imported from the folder that it happens to be started in
            "-m",
            CHILD,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=_environment(),
        )
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer, _ = await process.communicate(msgspec.json.encode(text))
        except TimeoutError:
            seconds = self._timeout_ms / 1000
            return _refused("too_slow", f"checking it takes longer than {seconds:g} s")
        finally:
            await _end(process)
        if process.returncode != 0:
            log.warning("definition_reader_failed", returncode=process.returncode)
            return _refused("too_expensive", "checking it takes more memory or time than allowed")
        return msgspec.json.decode(answer, type=Checked)


def _too_many(most: int, what: str) -> TooMany:
    return TooMany(f"{most} {what}", limit=most, retry_after_s=1)


def _refused(code: str, message: str) -> Checked:
    return Checked(None, [DefinitionProblem(path="", code=code, message=message)])


def _has_processes() -> bool:
    """Whether this interpreter can be started again; a program frozen into one file cannot."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _environment() -> dict[str, str]:
    """What the process needs to find its modules, and none of the coordinator's secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        waiting: asyncio.Future[Any] = asyncio.ensure_future(process.wait())
        await asyncio.shield(waiting)
