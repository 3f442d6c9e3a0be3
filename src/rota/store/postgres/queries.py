"""The named queries, as PostgreSQL takes them."""

from functools import cache

from rota.store.database import load_queries
from rota.store.postgres.dialect import Query, translated


@cache
def load() -> dict[str, Query]:
    return {name: translated(text) for name, text in load_queries("postgres").items()}
