"""Two coordinators on one PostgreSQL, both really served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.databases.schemas import schemas, url
from tests.gateways.serving import Api, served


@asynccontextmanager
async def served_pair(
    folder: Path, *, store_of_b: str | None = None
) -> AsyncIterator[tuple[Api, Api]]:
    """Coordinators `a` and `b`; the first leads. The second may have its own way to the store."""
    shared: dict[str, Any] = {"postgres_schema": schemas.lend("replicas"), "zmq_port": None}
    async with (
        served(folder / "a", replica_name="a", store=url(), **shared) as a,
        served(folder / "b", replica_name="b", store=store_of_b or url(), **shared) as b,
    ):
        yield a, b
    schemas.take_back()
