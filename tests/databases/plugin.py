"""On which stores does a test run? On both, unless it is about one of them.

A test that opens a store is run once for each. `@pytest.mark.only("sqlite")` keeps one that is
about a store of its own to that.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.databases.schemas import STORES, Store, run_on, schemas

OPENS_A_STORE = frozenset({"tmp_path", "database", "store", "engine", "flows", "pair", "engines"})


def parametrize_stores(metafunc: pytest.Metafunc) -> None:
    """To be called by `pytest_generate_tests` of a folder whose tests run on both stores."""
    if "store_kind" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only")
    if only is not None:
        stores: Any = only.args
    elif OPENS_A_STORE.isdisjoint(metafunc.fixturenames):
        return
    else:
        stores = STORES
    metafunc.parametrize("store_kind", stores, indirect=True)


@pytest.fixture(autouse=True)
def store_kind(request: pytest.FixtureRequest) -> Iterator[Store]:
    chosen: Store = getattr(request, "param", "sqlite")
    run_on(chosen)
    yield chosen
    run_on("sqlite")
    if chosen == "postgres":
        schemas.take_back()
