from collections.abc import Iterator
from itertools import count

import pytest

from tests.databases.server import NoPostgres, binaries
from tests.faults.postgres import Postgres, PostgresPlace, placed

_numbers = count(1)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of a module, which they may kill as they like."""
    if binaries() is None:
        pytest.skip(
            "no binaries of PostgreSQL here, and a server that is given is not ours to kill"
        )
    try:
        server = Postgres()
    except NoPostgres as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture
def place(postgres: Postgres) -> Iterator[PostgresPlace]:
    """A schema on it, reached by all coordinators alike."""
    with placed(postgres, f"scene_{next(_numbers)}") as one:
        yield one
