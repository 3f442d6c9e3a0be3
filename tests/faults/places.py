"""Where the coordinators of a fault test keep their state, and how it is looked at afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rota.store.sqlite.database import SqliteDatabase
from tests.faults.ledger import Ledger


class Place(Protocol):
    def url(self, replica: int) -> str:
        """What this coordinator is given as its store."""
        ...

    def problems(self, ledger: Ledger) -> list[str]:
        """When no coordinator is there any more: what the store does not know as it should."""
        ...


class SqlitePlace:
    """One file, for one coordinator."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rota.db"

    def url(self, replica: int) -> str:
        assert replica == 0, "a file has one coordinator"
        return f"sqlite:///{self.path}"

    def problems(self, ledger: Ledger) -> list[str]:
        with opened(self.path) as database:
            return ledger.problems(database)


@contextmanager
def opened(path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(str(path))
    try:
        yield database
    finally:
        database.close()
