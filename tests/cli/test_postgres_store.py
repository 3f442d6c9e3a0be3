"""The command line on a PostgreSQL: what it prints, and what it never does."""

import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "correct-horse"
NOWHERE = f"postgresql://rota:{SECRET}@127.0.0.1:1/work"


def rota(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rota.cli.main", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("command", ["up", "migrate", "doctor"])
def test_a_password_is_not_printed_when_the_database_is_away(tmp_path: Path, command: str) -> None:
    ended = rota(tmp_path, command, "--store", NOWHERE)

    assert ended.returncode != 0
    assert SECRET not in ended.stdout + ended.stderr
    assert "127.0.0.1" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        (f"{NOWHERE}?schema=mine", 'CREATE SCHEMA IF NOT EXISTS "mine"'),
        ("sqlite:///nothing.db", "PRAGMA user_version"),
    ],
)
def test_the_sql_of_a_store_is_printed_without_one(
    tmp_path: Path, store: str, expected: str
) -> None:
    ended = rota(tmp_path, "migrate", "--sql", "--store", store)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert expected in ended.stdout
    assert "CREATE TABLE task" in ended.stdout
    assert list(tmp_path.iterdir()) == []
