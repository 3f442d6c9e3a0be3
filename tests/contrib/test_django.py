"""The Django backend, in processes of their own: Django's settings belong to a process."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

pytest.importorskip("django", reason="the extra `django` is not installed")

from tests.cli.processes import environment
from tests.databases.schemas import url
from tests.sdk.serving import Server

ROOT = Path(__file__).parents[2]
FOLDER = "tests/contrib/django"
PATIENCE_S = 110

pytestmark = pytest.mark.slow


def run_tests(server: Server, *modules: str, **variables: str) -> None:
    """Run modules of tests in another process; their output is shown when one fails."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:xdist"),
            *("-p", "no:cacheprovider"),
            *(f"{FOLDER}/{one}.py" for one in modules),
        ],
        cwd=ROOT,
        env=environment(
            ROTA_URL=server.url,
            DJANGO_SETTINGS_MODULE="tests.contrib.django.site.settings",
            **variables,
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


def test_the_backend_does_what_django_asks_of_one(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        database = str(tmp_path / "site.sqlite3")
        modules = ("backend_tests", "transaction_tests", "settings_tests")
        run_tests(server, *modules, SITE_DATABASE=database)


def test_the_inbox_makes_a_task_part_of_a_transaction_of_postgresql(tmp_path: Path) -> None:
    schema = f"rota_django_{os.getpid()}"
    facts = conninfo_to_dict(url())
    site = {
        f"SITE_POSTGRES_{name}": str(facts[key])
        for name, key in (
            *(("NAME", "dbname"), ("USER", "user"), ("PASSWORD", "password")),
            *(("HOST", "host"), ("PORT", "port")),
        )
        if facts.get(key)
    }
    store = f"{url()}{'&' if '?' in url() else '?'}schema={schema}"
    try:
        with Server(tmp_path, store=store) as server:
            run_tests(server, "transaction_tests", SITE_SCHEMA=schema, **site)
    finally:
        with psycopg.connect(url()) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
