"""The servers that a run needs: each is started on first use, and ends with the run.

If a server cannot be started, it is tried only once, and every measurement that needs it is left
out for that reason.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks import postgres_server, redis_server
from benchmarks.comparing import Peer
from benchmarks.peers import measuring
from benchmarks.processes import Failed, LeftOut

Started = TypeVar("Started")


class OnDemand(Generic[Started]):
    def __init__(
        self, stack: ExitStack, start: Callable[[], AbstractContextManager[Started]]
    ) -> None:
        self._stack, self._start = stack, start
        self._started: Started | None = None
        self._problem: Failed | None = None

    def get(self) -> Started:
        if self._problem is not None:
            raise self._problem
        if self._started is None:
            try:
                self._started = self._stack.enter_context(self._start())
            except Failed as problem:
                self._problem = problem
                raise
        return self._started


class Servers:
    def __init__(self, stack: ExitStack, scratch: Path, *, install_redis: bool) -> None:
        self.postgres = OnDemand(stack, postgres_server.postgres)
        self._redis = {
            keeping: OnDemand(stack, partial(_redis, scratch, keeping, install=install_redis))
            for keeping in (redis_server.NOTHING, redis_server.EVERYTHING)
        }

    @contextmanager
    def environment(self, peer: Peer) -> Iterator[Mapping[str, str]]:
        """The variables that tell a peer its servers; its own database is dropped afterwards."""
        environment: dict[str, str] = {}
        if peer.redis is not None:
            url, about = self._redis[peer.redis].get()
            environment[measuring.REDIS_VARIABLE] = url
            environment[measuring.REDIS_SETTINGS_VARIABLE] = about
        if not peer.needs_postgres:
            yield environment
            return
        server = self.postgres.get()
        with server.database() as url:
            environment[measuring.POSTGRES_VARIABLE] = url
            environment[measuring.POSTGRES_SETTINGS_VARIABLE] = server.about
            environment[measuring.SERVER_VARIABLE] = str(server.process_id)
            environment[measuring.ANALYZE_VARIABLE] = json.dumps(server.analyze_command(url))
            yield environment


@contextmanager
def _redis(
    scratch: Path, keeping: redis_server.Keeping, *, install: bool
) -> Iterator[tuple[str, str]]:
    if install:
        redis_server.install()
    binary = redis_server.find()
    if binary is None:
        raise LeftOut("there is no redis-server on this machine (see --install-redis)")
    with redis_server.redis(binary, scratch / keeping.name, keeping) as (url, about):
        yield url, about
