"""Watches the Python files of a program, for `rota dev --reload`.

Files are looked at twice a second. A change counts when all changed files compile: a half-written
file does not stop what runs.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rota.cli.render.output import note

LOOK_EVERY_S = 0.5
MOST_FILES = 10_000  # more are not watched
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


class FileWatcher:
    """The Python files below a folder, as they were at the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()
        self.has_changed = False

    def changed(self) -> list[Path]:
        """The files that were written or added since the last call; removed ones do not count."""
        before, self._seen = self._seen, self._look()
        return [path for path, stamp in self._seen.items() if before.get(path) != stamp]

    async def wait(self) -> list[Path]:
        """Wait for a change that compiles."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            found = await asyncio.to_thread(self.changed)
            if found and all(map(_compiles, found)):
                self.has_changed = True
                return found

    def _look(self) -> dict[Path, int]:
        found: dict[Path, int] = {}
        for path in self._files():
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:  # removed meanwhile
                continue
            if len(found) >= MOST_FILES:
                break
        return found

    def _files(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [
                name for name in folders if name not in SKIPPED and not name.startswith(".")
            ]
            yield from (Path(folder, name) for name in files if name.endswith(".py"))


def _compiles(path: Path) -> bool:
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        note(f"{path} is not loaded: {error}")
        return False
    return True


def start_again() -> None:
    """Replace this process by a new one with the same arguments."""
    os.execv(sys.executable, [sys.executable, "-m", "rota.cli.main", *sys.argv[1:]])  # noqa: S606 - this program
