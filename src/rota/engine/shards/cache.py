"""Caches the state of services in memory between batches.

A rolled-back batch drops the services it touched. The next batch that needs them reads them from
the store, as after a restart.
"""

from rota.core.shards.hydration import restored
from rota.core.shards.members import ShardPolicy
from rota.core.shards.service import Service
from rota.store.shards import ShardStore


class ShardCache:
    """The current state of services. Only the writer uses it."""

    def __init__(self, policy: ShardPolicy) -> None:
        self.policy = policy
        self.services: dict[str, Service] = {}
        self.numbers: dict[str, int] = {}  # their row numbers in the store
        self.is_complete = False  # every service of the store is cached
        self.touched: set[str] = set()  # services that the current batch has changed
        self.unwritten: dict[str, set[str]] = {}  # by service: members with an unwritten heartbeat
        self.unwritten_since_ms: int | None = None
        self.has_written_seen = False  # the current batch has written the heartbeats
        self.deaf_until_ms: int | None = None  # the end of the last batch longer than `deaf_ms`

    def find(self, store: ShardStore, name: str, *, now_ms: int) -> Service | None:
        service = self.services.get(name)
        if service is not None or self.is_complete:
            return service
        stored = store.find(name)
        if stored is None:
            return None
        service = restored(stored.service, stored.members, stored.shards, now_ms=now_ms)
        self.services[name] = service
        self.numbers[name] = stored.number
        return service

    def fill(self, store: ShardStore, *, now_ms: int) -> None:
        """Load every service of the store, because a sweep concerns all of them."""
        if not self.is_complete:
            for name in store.service_names():
                self.find(store, name, now_ms=now_ms)
            self.is_complete = True

    def note_busy(self, since_ms: int, until_ms: int) -> None:
        """Note the time a batch took; messages of that time are read only after its end."""
        if until_ms - since_ms > self.policy.deaf_ms:
            self.deaf_until_ms = until_ms

    # --- the end of a batch -----------------------------------------------------------------------

    def commit(self) -> None:
        """Note that the store now holds all changes of the batch."""
        self.touched.clear()
        if self.has_written_seen:
            self.has_written_seen = False
            self.unwritten.clear()
            self.unwritten_since_ms = None

    def roll_back(self) -> None:
        """Drop every service that the batch has changed, because it was not committed."""
        for name in self.touched:
            self.services.pop(name, None)
            self.numbers.pop(name, None)
            self.unwritten.pop(name, None)
            self.is_complete = False
        self.touched.clear()
        self.has_written_seen = False
