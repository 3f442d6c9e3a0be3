"""Several coordinators on one PostgreSQL, each on a thread and a port of its own."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rota.node import Node
from rota.settings import Settings
from rota.store.postgres.address import PostgresOptions, address_of
from rota.store.postgres.database import PostgresDatabase
from tests.databases.schemas import schemas, url
from tests.sdk.sharing import ShardServer


class Replica(ShardServer):
    """One of them."""

    def __init__(self, schema: str, **settings: Any) -> None:
        super().__init__(Path(), **{"store": "sqlite://", **settings})
        self._schema = schema

    async def _serve(self, ready: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        database = PostgresDatabase(address_of(url(), self._schema), PostgresOptions(readers=4))
        self.node = Node(Settings(**self._settings), database=database)
        await self.node.serve(ready.set_result)


@contextmanager
def replicas(count: int = 2, **settings: Any) -> Iterator[list[Replica]]:
    """So many coordinators on one clean schema; those that a test has stopped stay so."""
    schema = schemas.lend("replicas")
    try:
        with ExitStack() as stack:
            started = [Replica(schema, replica_name=name, **settings) for name in "abc"[:count]]
            for one in started:
                stack.callback(one.stop)
                one.start()
            yield started
    finally:
        schemas.take_back()


def urls(servers: list[Replica]) -> str:
    return ",".join(one.url for one in servers)
