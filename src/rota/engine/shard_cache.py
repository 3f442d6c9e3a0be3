"""Where do services stand between batches? In memory, as the core works on them.

When a batch is rolled back, the services it touched are dropped; whoever needs them next reads them
from the store, as after a restart.
"""

from rota.core.shards.members import ShardPolicy
from rota.core.shards.service import Service, restored
from rota.store.shards import Shards


class ShardCache:
    """Services as they stand. Belongs to the writer."""

    def __init__(self, policy: ShardPolicy) -> None:
        self.policy = policy
        self.services: dict[str, Service] = {}
        self.numbers: dict[str, int] = {}  # that the store knows them by
        self.is_complete = False  # whether every service of the store is here
        self.touched: set[str] = set()  # by the batch that is under way
        self.unwritten: dict[str, set[str]] = {}  # members by service: heard of since
        self.unwritten_since_ms: int | None = None
        self.has_written_seen = False  # the batch that is under way
        self.deaf_until_ms: int | None = None  # when the last long batch was done

    def find(self, store: Shards, name: str, *, now_ms: int) -> Service | None:
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

    def fill(self, store: Shards, *, now_ms: int) -> None:
        """Every service there is: time passes for all of them."""
        if not self.is_complete:
            for name in store.names():
                self.find(store, name, now_ms=now_ms)
            self.is_complete = True

    def note_busy(self, since_ms: int, until_ms: int) -> None:
        """A batch has taken this time; what came meanwhile was not heard before its end."""
        if until_ms - since_ms > self.policy.deaf_ms:
            self.deaf_until_ms = until_ms

    def commit(self) -> None:
        """What the batch did to services in memory is now in the store as well."""
        self.touched.clear()
        if self.has_written_seen:
            self.has_written_seen = False
            self.unwritten.clear()
            self.unwritten_since_ms = None

    def roll_back(self) -> None:
        """The batch was not committed: what it did to services in memory never happened."""
        for name in self.touched:
            self.services.pop(name, None)
            self.numbers.pop(name, None)
            self.unwritten.pop(name, None)
            self.is_complete = False
        self.touched.clear()
        self.has_written_seen = False
