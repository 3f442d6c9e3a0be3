"""PgBouncer in transaction mode between coordinators and their database."""

import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.databases.server import USER
from tests.faults.postgres import DATABASE, Postgres
from tests.faults.processes import reserved_port

PATIENCE_S = 60.0
PLACES = "/usr/sbin:/usr/local/sbin"
CONFIGURATION = """
[databases]
{database} = host={folder} port=5432 dbname={database} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooled(server: Postgres, folder: Path) -> Iterator[str]:
    """Host and port of a pooler before this server."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:{PLACES}")
    if program is None:
        pytest.skip("there is no PgBouncer here; `make test` installs Debian's when it may")
    holder = reserved_port()
    port = holder.getsockname()[1]
    file = server.folder / f"pgbouncer-{port}.ini"
    file.write_text(
        CONFIGURATION.format(database=DATABASE, folder=server.folder, user=USER, port=port)
    )
    file.chmod(0o644)
    # The port is let go of, since PgBouncer shares it with nobody.
    holder.close()
    process = subprocess.Popen(
        [program, "-q", str(file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder.anchor,
        user=_another_user(),
    )
    try:
        _wait(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        file.unlink()


def _another_user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while True:
        try:
            psycopg.connect(f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}").close()
        except psycopg.OperationalError:
            assert process.poll() is None, "PgBouncer does not start"
            assert time.monotonic() < ends_at, "PgBouncer does not answer"
            pause.wait(0.05)
        else:
            return
