"""Reads and writes artifact contents in pieces; large ones go to files, not into memory."""

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterator
from typing import BinaryIO

from msgspec import Struct

from rota.core import limits
from rota.errors import ArtifactNotFound, StoreFull, Unavailable
from rota.settings import Settings
from rota.store.workflow.blobs import Blobs, NewBlob

LARGEST_IN_ROW = 256 * 1024  # bytes; larger contents are in a file beside the database
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
PIECE_BYTES = 1024 * 1024  # read or written at once


class ArtifactContent(Struct, frozen=True, kw_only=True):
    """The content of a new artifact: in memory if it is small, else in a synced file."""

    size: int
    inline: bytes | None = None
    file: str | None = None


class ArtifactIo:
    def __init__(self, blobs: Blobs | None, settings: Settings, *, is_shared: bool) -> None:
        """Blobs: where large contents are stored; None: in memory here, and in rows in the store.

        Peers that share a store cannot read each other's files, so contents are in rows there, and
        the limit of a row applies.
        """
        self._blobs = blobs
        most = settings.max_artifact_bytes
        self.most_bytes = min(most, limits.MAX_ARTIFACT_ROW_BYTES) if is_shared else most

    @property
    def is_in_memory(self) -> bool:
        """Whether a content stays in memory as a whole, at any size."""
        return self._blobs is None

    async def take(self, pieces: AsyncIterator[bytes]) -> ArtifactContent:
        """Take all pieces; a large content is synced to the disk when this returns."""
        incoming = _Incoming(self._blobs)
        try:
            async for piece in pieces:
                await incoming.add(piece)
            return await incoming.finish()
        except OSError as error:
            incoming.discard()
            if error.errno in NO_SPACE:
                raise StoreFull from error
            raise Unavailable(f"the artifact cannot be written now: {error.strerror}") from error
        except BaseException:
            incoming.discard()
            raise

    async def discard(self, content: ArtifactContent) -> None:
        """Remove the file of a content that no artifact will use."""
        if content.file is not None and self._blobs is not None:
            await asyncio.to_thread(self._blobs.remove, [content.file])

    async def open(self, file: str, *, name: str) -> BinaryIO:
        """Open a stored file; raise `ArtifactNotFound` if it has been removed."""
        found = None
        if self._blobs is not None:
            found = await asyncio.to_thread(self._blobs.open, file)
        if found is None:
            raise ArtifactNotFound(name)
        return found


async def pieces_of(file: BinaryIO) -> AsyncGenerator[bytes]:
    """Yield a file in pieces; close it when the reader finishes or stops early."""
    try:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
    finally:
        file.close()


class _Incoming:
    def __init__(self, blobs: Blobs | None) -> None:
        self._blobs = blobs
        self._blob: NewBlob | None = None
        self._held = bytearray()
        self._size = 0

    async def add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._held += piece
        if self._blobs is None or len(self._held) <= LARGEST_IN_ROW:
            return
        if self._blob is None:
            self._blob = await asyncio.to_thread(self._blobs.create)
        if len(self._held) >= PIECE_BYTES:
            await self._write(self._blob)

    async def finish(self) -> ArtifactContent:
        if self._blob is None:
            return ArtifactContent(size=self._size, inline=bytes(self._held))
        await self._write(self._blob)
        await asyncio.to_thread(self._blob.finish)
        return ArtifactContent(size=self._size, file=self._blob.name)

    async def _write(self, blob: NewBlob) -> None:
        piece, self._held = bytes(self._held), bytearray()
        await asyncio.to_thread(blob.write, piece)

    def discard(self) -> None:
        if self._blob is not None:
            self._blob.discard()
