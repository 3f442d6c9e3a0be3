"""Values too large for rows, each a file in a folder beside the database.

A file is written and synced, and its folder too, before a row that names it is committed. It is
removed after the commit that deletes the row. So a row never names a missing file. A crash leaves
at most files that no row names: the next start removes those.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".artifacts"
NAME_BYTES = 16


class Blobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        return self._folder

    @classmethod
    def beside(cls, database: str) -> "Blobs":
        """The folder of the database in this file."""
        return cls(Path(f"{os.path.realpath(database)}{SUFFIX}"))

    def create(self) -> "NewBlob":
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(self._folder.parent)
        return NewBlob(self._folder, secrets.token_hex(NAME_BYTES))

    def open(self, name: str) -> BinaryIO | None:
        """Open a file to read; None when it was removed meanwhile."""
        try:
            return (self._folder / name).open("rb")
        except FileNotFoundError:
            return None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)

    def sweep(self, wanted: AbstractSet[str]) -> int:
        """Remove every file that no row names; returns how many there were."""
        if not self._folder.is_dir():
            return 0
        orphans = [file.name for file in self._folder.iterdir() if file.name not in wanted]
        self.remove(orphans)
        return len(orphans)


class NewBlob:
    """A file that is being written: kept by `finish`, removed by `discard`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._file = (folder / name).open("xb")

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def finish(self) -> None:
        """Sync the file and its folder: the file survives a crash when this returns."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        _sync_folder(self._folder)

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # of bytes that could not be written either
            self._file.close()
        (self._folder / self.name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
