"""A PgBouncer of the tests' own, handing out connections to a PostgreSQL by transaction."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.databases.server import OTHER_USERS, USER

START_TIMEOUT_S = 60.0
POLL_S = 0.02
PLACES = ("/usr/sbin", "/usr/bin", "/usr/local/bin")


def found() -> str | None:
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))


class PgBouncer:
    def __init__(self, server_url: str, *, connections: int) -> None:
        program = found()
        assert program is not None
        self._folder = Path(tempfile.mkdtemp(prefix="rota-pgb-"))
        self._folder.chmod(0o777)
        host = parse_qs(urlsplit(server_url).query)["host"][0]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": connections,
            "logfile": self._folder / "log",
            "pidfile": self._folder / "pid",
        }
        lines = ["[databases]", f"work = host={host} dbname=postgres user={USER}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        file = self._folder / "pgbouncer.ini"
        file.write_text("\n".join(lines))
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/work"
        self._process = subprocess.Popen(
            [program, "-q", *_as_other_user(), str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    def _wait(self) -> None:
        patience = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < patience, "PgBouncer does not start"
            time.sleep(POLL_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _as_other_user() -> list[str]:
    """PgBouncer refuses to be root."""
    if os.geteuid() != 0:
        return []
    for name in OTHER_USERS:
        with suppress(KeyError):
            return ["-u", pwd.getpwnam(name).pw_name]
    return []
