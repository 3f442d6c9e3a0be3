"""Locks and the callers that wait for them."""

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from rota.core.locks import LockState, LockStatus, LockWaiter
from rota.store.database import Transaction

Places = Mapping[tuple[str, str], str]  # names of coordinators, by lock and owner


class LockStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def get(self, name: str) -> LockState:
        """A lock with its waiters. A lock without a row is free."""
        lock = self._tx.record(LockState, "locks.get", name=name)
        if lock is None:
            return LockState(name=name)
        return replace(
            lock, waiters=tuple(self._tx.records(LockWaiter, "locks.waiters", lock=name))
        )

    def put(self, lock: LockState, *, before: LockState, places: Places) -> None:
        """Write what has changed about a lock, however many callers wait for it.

        Places: the coordinator where each new waiter waits, where there are several.
        """
        if lock.waiters != before.waiters:
            self._put_waiters(lock, before, places)
        if lock.owner is None and not lock.waiters:
            self._tx.pipeline("locks.delete", name=lock.name)
        else:
            self._tx.pipeline("locks.put", **asdict(lock))

    def _put_waiters(self, lock: LockState, before: LockState, places: Places) -> None:
        known = {one.ticket: one for one in before.waiters}
        gone = [(lock.name, ticket) for ticket in known.keys() - {w.ticket for w in lock.waiters}]
        if gone:
            self._tx.pipeline_many("locks.delete_waiter", ("lock", "ticket"), gone)
        self._tx.pipeline_many(
            "locks.put_waiter",
            ("lock", "ticket", "asked", "owner", "ttl_ms", "until_ms", "replica"),
            [
                (
                    lock.name,
                    one.ticket,
                    one.asked,
                    one.owner,
                    one.ttl_ms,
                    one.until_ms,
                    places.get((lock.name, one.owner)),
                )
                for one in lock.waiters
                if known.get(one.ticket) != one
            ],
        )

    def delete_waiters(self) -> None:
        """Delete all waiters: they were connected to a coordinator that is gone."""
        self._tx.pipeline("locks.delete_all_waiters")

    def expire_waiters(self, replica: str, *, now_ms: int) -> None:
        """End the waits that a replica, which is gone, held for its callers."""
        self._tx.pipeline("locks.expire_waiters", now_ms=now_ms, replica=replica)

    def held(self, names: list[str]) -> list[LockState]:
        """Of these locks, the held ones, without their waiters."""
        return self._tx.records(LockState, "locks.held", names=names)

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Held locks past their expiry, and free ones whose last waiter is past its time."""
        return self._tx.column("locks.expired", now_ms=now_ms, limit=limit)

    def next_expiry_ms(self) -> int | None:
        found: int | None = self._tx.value("locks.next_expiry")
        return found

    def status(self, name: str, *, now_ms: int) -> LockStatus:
        found = self._tx.record(LockStatus, "locks.status", name=name, now_ms=now_ms)
        return found or LockStatus(name=name)

    def page(self, *, after: str, now_ms: int, limit: int) -> list[LockStatus]:
        """The next held locks in the order of their names."""
        return self._tx.records(LockStatus, "locks.page", after=after, now_ms=now_ms, limit=limit)
