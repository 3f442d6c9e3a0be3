"""A PostgreSQL that can be killed, and that is reached directly or through a bad network."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from tests.databases.server import USER, Server
from tests.faults.ledger import Ledger
from tests.faults.proxy import Proxy

# What a commit has promised is on the disk here, and connections can be used up.
DURABLE = ("fsync=on", "full_page_writes=on", "max_connections=60")
DATABASE = "postgres"
PATIENCE_S = 60.0


class Postgres:
    """A server of the tests' own."""

    def __init__(self) -> None:
        self._server = Server(settings=DURABLE).start()
        folder = parse_qs(urlsplit(self._server.url).query)["host"][0]
        self.folder = Path(folder)
        self.socket = str(self.folder / ".s.PGSQL.5432")

    @property
    def url(self) -> str:
        return self._server.url

    def connect(self, name: str = "test") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True, connect_timeout=10, application_name=name)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def restart_at_once(self) -> None:
        """Shut down without a word to anybody, as for a crash of one backend, and come back."""
        self._server.kill()
        self._server.start()

    def kill_and_start(self) -> None:
        """`kill -9` of the server and of all its processes, each by its id, and a new start."""
        postmaster = self._server.pid
        os.kill(postmaster, signal.SIGSTOP)  # it has no more children while they are counted
        family = [postmaster, *_children_of(postmaster)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server.kill()  # waits for its end
        for pid in family[1:]:
            _wait_gone(pid)
        self._server.start()

    def terminate_backends(self) -> int:
        """End every session but those of the tests themselves."""
        with self.connect() as connection:
            return terminate_backends(connection)

    def close(self) -> None:
        self._server.close()


def terminate_backends(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    """End every session of a coordinator; how many there were."""
    cursor = connection.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name LIKE 'rota%' AND backend_type = 'client backend'"
    )
    (ended,) = cursor.fetchall()
    return int(ended[0])


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name may hold blanks and brackets; the parent comes after its last bracket.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
    return found


def _wait_gone(pid: int) -> None:
    """Killed processes whose parent is gone are taken away by the system, which takes a moment."""
    ended = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        ended.wait(0.01)
    raise AssertionError(f"process {pid} does not end")


class PostgresPlace:
    """A schema of its own on a server; some coordinators may reach it through a proxy."""

    def __init__(self, server: Postgres, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.proxies: dict[int, Proxy] = {}  # by replica
        self.pool_url: str | None = None  # of a pooler, for all of them

    def url(self, replica: int) -> str:
        options = f"schema={self.schema}"
        if replica in self.proxies:
            proxy = self.proxies[replica]
            return f"postgresql://{USER}@{proxy.host}:{proxy.port}/{DATABASE}?{options}"
        if self.pool_url is not None:
            return f"{self.pool_url}?{options}"
        return f"{self.server.url}&{options}"

    def problems(self, ledger: Ledger) -> list[str]:
        database = PostgresDatabase(address_of(self.server.url, self.schema))
        try:
            with self.server.connect() as connection:
                connection.execute(f"SET search_path TO {self.schema}".encode())
                return ledger.problems_in(
                    database, lambda query: connection.execute(query.encode()).fetchall()
                )
        finally:
            database.close()

    def drop(self) -> None:
        self.server.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")


@contextmanager
def placed(
    server: Postgres, schema: str, *, proxied: Iterable[int] = ()
) -> Iterator[PostgresPlace]:
    """A place that is gone afterwards; some replicas have each a way of their own to it."""
    place = PostgresPlace(server, schema)
    for replica in proxied:
        place.proxies[replica] = Proxy(server.socket)
    try:
        yield place
    finally:
        for proxy in place.proxies.values():
            proxy.close()
        place.drop()
