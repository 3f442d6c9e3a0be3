"""A PostgreSQL server for the benchmark: durable settings, a free loopback port, no traces.

It is the server of the tests without the settings that make tests quick: `fsync`,
`synchronous_commit` and `full_page_writes` are on, and the others are PostgreSQL's defaults. Most
installations run like that, and each system here is measured on it. Its files are under `/var/tmp`,
which is on a disk and accessible to the user that the server runs as.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from benchmarks import machine
from benchmarks.processes import LeftOut, free_port
from tests.databases.server import USER, NoPostgres, binaries
from tests.databases.server import Server as TestServer

SAFE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
# PostgreSQL's defaults; tests use other values.
PLAIN = {
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "1min",
}
PLACE = Path("/var/tmp")
INSTALL_LIMIT_S = 300.0

_databases = count(1)


class Server:
    def __init__(self, server: TestServer, port: int) -> None:
        self._port = port
        self.process_id = server.pid
        version = self._ask("SHOW server_version").split()[0]
        settings = ", ".join(f"{name}={self._ask(f'SHOW {name}')}" for name in SAFE)
        place = machine.file_system(server.data)
        self.about = f"PostgreSQL {version}, {settings}, else by default, on {place}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a fresh database; it is dropped, so that no vacuum disturbs the next."""
        name = f"benchmark_{next(_databases)}"
        self._run(f"CREATE DATABASE {name}")
        try:
            yield self._url(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def analyze_command(self, url: str) -> list[str]:
        place = binaries()
        assert place is not None, "it runs"
        return [str(place / "vacuumdb"), "--analyze-only", f"--dbname={url}"]

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{database}"

    def _run(self, text: str) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(text.encode())

    def _ask(self, text: str) -> str:
        with psycopg.connect(self._url("postgres")) as connection:
            row = connection.execute(text.encode()).fetchone()
            assert row is not None
            return str(row[0])


@contextmanager
def postgres(**settings: str) -> Iterator[Server]:
    """Run an empty server."""
    install()
    port = free_port()
    chosen = {**SAFE, **PLAIN, **settings}
    try:
        server = TestServer(
            settings=[f"{name}={value}" for name, value in chosen.items()],
            place=PLACE if PLACE.is_dir() else None,
            port=port,
        )
    except NoPostgres as error:
        raise LeftOut(str(error)) from error
    try:
        server.start()
        yield Server(server, port)
    finally:
        server.stop()
        server.close()


def install() -> None:
    """Install Debian's package if there is no PostgreSQL; without root, say what to do."""
    if binaries() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise LeftOut("there is no PostgreSQL on this machine; install your system's `postgresql`")
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "postgresql"]):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_LIMIT_S,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if done.returncode != 0 and "install" in command:
            raise LeftOut(f"apt-get could not install postgresql: {done.stderr.strip()[-300:]}")
