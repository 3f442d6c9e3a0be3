"""What is left on a disk when the power goes?

Theory of operation. A `Disk` is a SQLite VFS over real files in a folder. The running program sees
every write at once, as it would through the cache of its system; beside it the disk keeps what a
cut would leave. A write, a new length and a new or deleted name count as unsynced until the sync
that covers them. At a cut, what was synced stays; of the rest anything may: all of it, nothing,
the oldest part, or any pieces of it, down to sectors of 512 bytes, some of them scrambled. Shared
memory is not part of the disk: it is gone.

The number of operations until the cut is chosen beforehand, so that a cut falls between any two of
them, and into each. The program does not notice it: what it does afterwards has no effect, and
its driver must not count an answer that comes when the power is off.
"""

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw

SECTOR_BYTES = 512
NAME = "rota.db"
SCRAMBLED = 0.1  # share of the sectors that a torn write leaves with neither old nor new content

_numbers = count(1)

TRACKED = (
    apsw.SQLITE_OPEN_MAIN_DB
    | apsw.SQLITE_OPEN_WAL
    | apsw.SQLITE_OPEN_MAIN_JOURNAL
    | apsw.SQLITE_OPEN_SUPER_JOURNAL
)
# Their first sync also syncs the folder: so does SQLite's own VFS for files it creates.
NEW_NAMES = TRACKED & ~apsw.SQLITE_OPEN_MAIN_DB

Change = tuple[int, bytes] | int  # bytes at an offset, or a new length
Image = dict[str, bytes]


class StoredFile:
    """One file: what a cut cannot take away, and what it can."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.unsynced: list[Change] = []

    def change(self, change: Change) -> None:
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def after_cut(self, dice: random.Random) -> bytes:
        content = bytearray(self.durable)
        for change in _survivors(self.unsynced, dice):
            _apply(content, change)
        return bytes(content)


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    offset, data = change
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _survivors(changes: list[Change], dice: random.Random) -> list[Change]:
    fate = dice.random()
    if fate < 0.2:
        return []
    if fate < 0.3:
        return changes
    if fate < 0.5:
        return changes[: dice.randint(0, len(changes))]
    kept = dice.random()
    pieces = [piece for change in changes for piece in _torn(change, dice)]
    return [piece for piece in pieces if dice.random() < kept]


def _torn(change: Change, dice: random.Random) -> list[Change]:
    """A write as the disk does it: sector by sector. What is beside the write is left alone."""
    if isinstance(change, int):
        return [change]
    offset, data = change
    end = offset + len(data)
    # Its length may reach the disk without its content.
    pieces: list[Change] = [(end, b"")]
    while offset < end:
        until = min(end, (offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
        piece = data[: until - offset]
        data = data[until - offset :]
        pieces.append((offset, dice.randbytes(len(piece)) if dice.random() < SCRAMBLED else piece))
        offset = until
    return pieces


class Disk(apsw.VFS):
    """A disk whose power can be cut; open databases on it with `vfs=disk.vfs_name`."""

    def __init__(self, folder: Path, dice: random.Random, image: Image | None = None) -> None:
        self.vfs_name = f"disk-{next(_numbers)}"
        super().__init__(self.vfs_name, "")
        self.path = str(folder / NAME)
        self.operations = 0
        self.syncs = 0
        self.cut_at: int | None = None  # which operation
        self.cut_at_sync: int | None = None  # which sync: there are few, and they matter most
        self._dice = dice
        self._left: Image | None = None
        self._durable_names: dict[str, StoredFile] = {}
        self._unsynced_names: list[tuple[str, StoredFile | None]] = []
        folder.mkdir(parents=True)
        for name, content in (image or {}).items():
            path = folder / name
            path.write_bytes(content)
            self._durable_names[str(path)] = StoredFile(content)
        self._names = dict(self._durable_names)

    @property
    def is_off(self) -> bool:
        return self._left is not None

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        if name is None or not flags[0] & TRACKED:
            return apsw.VFSFile("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        stored = self._names.get(path)
        if stored is None:
            fresh = stored = StoredFile()
            self.operate(lambda: self._rename(path, fresh))
        syncs_names = bool(flags[0] & NEW_NAMES)
        return DiskFile(self, stored, name, flags, syncs_names=syncs_names)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's
        self.operate(lambda: self._rename(filename, None))
        if syncdir:
            self.operate(self.sync_names, is_sync=True)
        super().xDelete(filename, syncdir)

    def roll_out_log(self, size: int) -> None:
        """Make the log this long and sync it, as the store does on a disk of its own accord."""
        if self.is_off:
            return
        path = Path(f"{self.path}-wal")
        stored = self._names[str(path)]
        with path.open("r+b") as log:
            length = log.seek(0, os.SEEK_END)
            zeros = bytes(max(0, size - length))
            log.write(zeros)
        self.operate(lambda: stored.change((length, zeros)))
        self.operate(stored.sync, is_sync=True)

    def operate(self, effect: Callable[[], None], *, is_sync: bool = False) -> None:
        """Carry out one operation; the one at which the cut falls may still reach the disk."""
        if self.is_off:
            return
        self.operations += 1
        self.syncs += is_sync
        is_cut = self.operations == self.cut_at or (is_sync and self.syncs == self.cut_at_sync)
        if not is_cut or self._dice.random() < 0.5:
            effect()
        if is_cut:
            self.cut()

    def sync_names(self) -> None:
        for path, stored in self._unsynced_names:
            _rename(self._durable_names, path, stored)
        self._unsynced_names.clear()

    def cut(self) -> Image:
        """Take the power away, if it is not gone yet; the answer is what is left."""
        if self._left is None:
            names = dict(self._durable_names)
            # A file system keeps the order of names.
            kept = self._dice.randint(0, len(self._unsynced_names))
            for path, stored in self._unsynced_names[:kept]:
                _rename(names, path, stored)
            self._left = {
                Path(path).name: stored.after_cut(self._dice) for path, stored in names.items()
            }
        return self._left

    def _rename(self, path: str, stored: StoredFile | None) -> None:
        _rename(self._names, path, stored)
        self._unsynced_names.append((path, stored))


def _rename(names: dict[str, StoredFile], path: str, stored: StoredFile | None) -> None:
    if stored is None:
        names.pop(path, None)
    else:
        names[path] = stored


class DiskFile(apsw.VFSFile):
    """A file on the disk; what is not overridden here goes to SQLite's own VFS."""

    def __init__(
        self,
        disk: Disk,
        stored: StoredFile,
        name: str | apsw.URIFilename,
        flags: list[int],
        *,
        syncs_names: bool,
    ) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._stored = stored
        self._syncs_names = syncs_names

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's names, these too
        copied = bytes(data)
        self._disk.operate(lambda: self._stored.change((offset, copied)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.operate(lambda: self._stored.change(newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802
        self._disk.operate(self._stored.sync, is_sync=True)
        if self._syncs_names:
            self._syncs_names = False
            self._disk.operate(self._disk.sync_names, is_sync=True)
