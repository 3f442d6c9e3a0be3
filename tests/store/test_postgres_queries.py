"""Is every query one that PostgreSQL takes, and is every one for many rows set-based there?"""

import ast
from pathlib import Path

import pytest

from rota.store import database
from rota.store.postgres.dialect import postgres_queries
from rota.store.postgres.transaction import PostgresTransaction
from tests.databases.schemas import open_store, open_transaction

pytestmark = pytest.mark.only("postgres")

SOURCE = Path(database.__file__).parent
ARRAYS = {"bigint[]", "bytea[]", "text[]"}


def run_for_many() -> set[str]:
    """The names of the queries that the store runs for many rows."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"execute_many", "pipeline_many"}
                and isinstance(node.args[0], ast.Constant)
            ):
                found.add(str(node.args[0].value))
    return found


@pytest.mark.parametrize("query", sorted(run_for_many()))
def test_many_rows_are_one_statement(query: str) -> None:
    types = postgres_queries()[query].types

    assert set(types.values()) <= ARRAYS, f"{query} needs an override in sql/postgres"


def test_every_query_is_understood(tmp_path: Path) -> None:
    opened = open_store(tmp_path)
    broken = {}
    with open_transaction(opened) as tx:
        assert isinstance(tx, PostgresTransaction)
        for name, query in postgres_queries().items():
            if name in SQLITES_OWN:
                continue
            tx._connection.script(b"SAVEPOINT before")
            try:
                tx._connection.script(b"PREPARE tried AS " + query.text)
                tx._connection.script(b"DEALLOCATE tried")
            except Exception as error:  # noqa: BLE001 - all of them are told together
                broken[name] = str(error)
                tx._connection.script(b"ROLLBACK TO before")
    opened.close()

    assert broken == {}


SQLITES_OWN = {"tasks.stage_finished", "tasks.unstage_finished"}
