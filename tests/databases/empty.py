"""What does a store of SQLite begin as? A copy of an empty one, which was made once.

To go through all shapes of the database, each with its wait for the disk, takes longer than most
tests do. Tests of the shapes themselves open their stores without this.
"""

import tempfile
from functools import cache
from pathlib import Path

from rota.store.sqlite.database import PRIVATE, SqliteDatabase


@cache
def empty_store() -> bytes:
    """A database of the newest shape."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "empty.db"
        SqliteDatabase(str(path)).close()
        return path.read_bytes()


def begin_empty(path: Path) -> None:
    """Have an empty store there, unless there is one already."""
    if not path.exists():
        path.touch(PRIVATE)
        path.write_bytes(empty_store())
