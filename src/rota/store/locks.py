"""Locks, and who stands in line for them."""

from rota.core.locks import Lock, LockFigures, Waiter
from rota.store.database import Row, Transaction


class Locks:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def one(self, name: str) -> Lock:
        """A lock with its line; one that nobody has or waits for is free."""
        for owner, fence, asked, ttl_ms, expires_at_ms in self._tx.rows("locks.one", name):
            return Lock(
                name=name,
                owner=owner,
                fence=fence,
                asked=asked,
                ttl_ms=ttl_ms,
                expires_at_ms=expires_at_ms,
                waiters=self._waiters(name),
            )
        return Lock(name=name)

    def _waiters(self, name: str) -> tuple[Waiter, ...]:
        return tuple(
            Waiter(ticket=ticket, asked=asked, owner=owner, ttl_ms=ttl_ms, until_ms=until_ms)
            for ticket, asked, owner, ttl_ms, until_ms in self._tx.rows("locks.waiters", name)
        )

    def put(self, lock: Lock, *, before: Lock, replica: str | None = None) -> None:
        """Write what has changed about a lock, however long its line is.

        Whoever has newly asked waits with this replica, where there are several.
        """
        if lock.waiters != before.waiters:
            self._put_line(lock, before, replica)
        if lock.owner is None and not lock.waiters:
            self._tx.run("locks.drop", lock.name)
        else:
            self._tx.run(
                "locks.put",
                lock.name,
                lock.owner,
                lock.fence,
                lock.asked,
                lock.ttl_ms,
                lock.expires_at_ms,
            )

    def _put_line(self, lock: Lock, before: Lock, replica: str | None) -> None:
        stood = {one.ticket: one for one in before.waiters}
        stands = {one.ticket: one for one in lock.waiters}
        gone = [(lock.name, ticket) for ticket in stood.keys() - stands.keys()]
        if gone:
            self._tx.many("locks.drop_waiter", gone)
        self._tx.many(
            "locks.put_waiter",
            [
                (lock.name, one.ticket, one.asked, one.owner, one.ttl_ms, one.until_ms, replica)
                for one in lock.waiters
                if stood.get(one.ticket) != one
            ],
        )

    def drop_lines(self) -> None:
        """Nobody waits: those who did were connected to a coordinator that is gone."""
        self._tx.run("locks.drop_every_waiter")

    def leave_lines(self, replica: str, *, now_ms: int) -> None:
        """Nobody waits with this replica any more."""
        self._tx.run("locks.leave_lines", now_ms, replica, now_ms)

    def held(self, names: list[str]) -> list[Lock]:
        """Of these locks, those that somebody has; without their lines."""
        return [
            Lock(
                name=name,
                owner=owner,
                fence=fence,
                asked=asked,
                ttl_ms=ttl_ms,
                expires_at_ms=expires_at_ms,
            )
            for name, owner, fence, asked, ttl_ms, expires_at_ms in self._tx.rows(
                "locks.held", names
            )
        ]

    def over(self, now_ms: int, most: int) -> list[str]:
        """Locks whose time is over, and free ones in whose line nobody can be any more."""
        return [name for (name,) in self._tx.rows("locks.over", now_ms, most)]

    def next_moment_ms(self) -> int | None:
        found: int | None = self._tx.rows("locks.next")[0][0]
        return found

    # --- looking --------------------------------------------------------------------------------

    def look(self, name: str, *, now_ms: int) -> LockFigures:
        for row in self._tx.rows("locks.look", now_ms, name, now_ms):
            return _figures(row)
        return LockFigures(name=name)

    def page(self, *, after: str, now_ms: int, limit: int) -> list[LockFigures]:
        """The next locks that somebody has, in the order of their names."""
        return [_figures(row) for row in self._tx.rows("locks.page", now_ms, after, now_ms, limit)]


def _figures(row: Row) -> LockFigures:
    name, owner, fence, expires_at_ms, waiting = row
    return LockFigures(
        name=name, owner=owner, fence=fence, expires_at_ms=expires_at_ms, waiting=waiting
    )
