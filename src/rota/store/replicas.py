"""What several coordinators on one store have to know of each other, and of each other's writes."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from rota.core.replicas import Counted, Replica
from rota.core.valves import Watch
from rota.core.workers import Health
from rota.store.database import Transaction

_encode = msgspec.json.Encoder().encode


class WorkerWatch(Struct, frozen=True, kw_only=True):
    """What the last sweep over the workers found, whoever made it."""

    watch: Watch = Watch()
    healths: Mapping[str, Health] = {}  # of workers that are not healthy


_decode_counts = msgspec.json.Decoder(tuple[Counted, ...]).decode
_decode_watch = msgspec.json.Decoder(WorkerWatch).decode


class Facts(NamedTuple):
    """What is remembered from batch to batch, as the store has it."""

    last_task_id: int
    last_seq: int  # of the notices
    last_news: int
    last_lane: int
    workers: tuple[int, int]  # another pair: some worker came or left
    services: int  # another number: something about some service has changed
    watch: WorkerWatch
    has_open_breakers: bool
    has_cancelled: bool
    has_session_tasks: bool
    has_run_tasks: bool
    has_staged: bool


class Replicas:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- what others may have written -------------------------------------------------------------

    def facts(self) -> Facts:
        row = self._tx.rows("replicas.facts")[0]
        numbers = [one or 0 for one in row[:11]]
        return Facts(
            last_task_id=max(numbers[:4]),
            last_seq=max(numbers[4:6]),
            last_news=numbers[6],
            last_lane=numbers[7],
            workers=(numbers[8], numbers[9]),
            services=int(numbers[10]),
            watch=WorkerWatch() if row[11] is None else _decode_watch(row[11]),
            has_open_breakers=bool(row[12]),
            has_cancelled=bool(row[13]),
            has_session_tasks=bool(row[14]),
            has_run_tasks=bool(row[15]),
            has_staged=bool(row[16]),
        )

    def put_watch(self, watch: WorkerWatch) -> None:
        self._tx.run("replicas.put_watch", _encode(watch))

    def live(self, ids: list[int]) -> set[int]:
        """Of these tasks and runs, those that have not ended."""
        return {number for (number,) in self._tx.rows("replicas.live", ids, ids)}

    def has_ready(self) -> bool:
        return bool(self._tx.rows("replicas.any_ready")[0][0])

    def cancelled(self, most: int) -> list[tuple[int, int]]:
        """Of the workers that are to be told: the incarnation, and the task."""
        return [(one, number) for one, number in self._tx.rows("replicas.cancelled", most)]

    def sessions_with_news(self, sessions: list[str], *, after: int) -> set[str]:
        rows = self._tx.rows("replicas.sessions_with_news", sessions, after)
        return {session for (session,) in rows}

    # --- each other -------------------------------------------------------------------------------

    def beat(self, replica: Replica) -> None:
        one = replica
        self._tx.run(
            "replicas.beat",
            one.name,
            one.url,
            one.host,
            one.version,
            one.started_at_ms,
            one.seen_ms,
            _encode(one.counts),
        )

    def every(self) -> list[Replica]:
        return [
            Replica(
                name=name,
                url=url,
                host=host,
                version=version,
                started_at_ms=started_at_ms,
                seen_ms=seen_ms,
                counts=() if counts is None else _decode_counts(counts),
            )
            for name, url, host, version, started_at_ms, seen_ms, counts in self._tx.rows(
                "replicas.every"
            )
        ]

    def silent(self, before_ms: int) -> list[str]:
        """Those that were not heard of since."""
        return [name for (name,) in self._tx.rows("replicas.silent", before_ms)]

    def drop(self, name: str) -> None:
        self._tx.run("replicas.drop", name)

    def forget(self, before_ms: int) -> None:
        self._tx.run("replicas.forget", before_ms)
