"""A disk that refuses: full, or failing, for as long as a test wants it to.

Only the log is made to fail from here. A failing checkpoint is swallowed by SQLite (the log still
has everything), but not by the bridge between SQLite and Python, which would report it as if the
commit had failed; the tests of that case limit the size of real files instead.
"""

from itertools import count

import apsw

_numbers = count(1)


class BrokenDisk(apsw.VFS):
    """SQLite's own VFS, but for what is broken; open databases on it with `vfs=disk.vfs_name`."""

    def __init__(self) -> None:
        self.vfs_name = f"broken-{next(_numbers)}"
        super().__init__(self.vfs_name, "")
        self.on_write: apsw.Error | None = None  # raised by each write to the log
        self.on_sync: apsw.Error | None = None  # raised by each sync of the log
        self.on_read: apsw.Error | None = None  # raised by each read of any file
        self.times: int | None = None  # how often, before all is well again; None: until mended
        self.refused = 0

    def mend(self) -> None:
        self.on_write = self.on_sync = self.on_read = None

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _BrokenFile(self, name, flags)

    def check(self, error: apsw.Error | None) -> None:
        if error is None or self.times == 0:
            return
        if self.times is not None:
            self.times -= 1
        self.refused += 1
        raise error


class _BrokenFile(apsw.VFSFile):
    def __init__(
        self, disk: BrokenDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's names, these too
        self._disk.check(self._disk.on_read)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._is_log:
            self._disk.check(self._disk.on_write)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._is_log:
            self._disk.check(self._disk.on_sync)
        super().xSync(flags)
