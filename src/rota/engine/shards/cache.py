"""Caches the state of services in memory between batches.

A rolled-back batch drops the services it touched. The next batch that needs them reads them from
the store, as after a restart.

Where several coordinators share the store, each change of a service raises its version. The cache
reads a service again when a peer has changed it, and carries over what only this coordinator knows.
"""

from msgspec.structs import replace

from rota.core.shards.hydration import (
    SoftState,
    carry_over,
    push_due,
    restore_soft_state,
    restored,
    soft_state_of,
)
from rota.core.shards.members import ShardPolicy
from rota.core.shards.service import Service
from rota.store.shards import ShardStore


class ShardCache:
    """The current state of services. Only the writer uses it."""

    def __init__(self, policy: ShardPolicy, *, is_shared: bool = False) -> None:
        self.policy = policy
        self.is_shared = is_shared  # peers may change services, too
        self.services: dict[str, Service] = {}
        self.numbers: dict[str, int] = {}  # their row numbers in the store
        self.is_complete = False  # every service of the store is cached
        self.touched: set[str] = set()  # services that the current batch has changed
        self.unwritten: dict[str, set[str]] = {}  # by service: members with an unwritten heartbeat
        self.unwritten_since_ms: int | None = None
        self.has_written_seen = False  # the current batch has written the heartbeats
        self.deaf_until_ms: int | None = None  # the end of the last batch longer than `deaf_ms`
        # Only for a shared store:
        self.versions: dict[str, int] = {}
        self.soft_states: dict[str, SoftState] = {}  # as stored
        self.signature = -1  # of all versions together, at the last refresh
        self.to_notify: dict[str, set[str]] = {}  # by service: members to notify of peers' changes
        self.heartbeats_read_ms = 0  # heartbeats stored before this time are known here
        self.has_unread_heartbeats = True  # peers may have received heartbeats since

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
        if self.is_shared:
            self.versions[name] = stored.version
            if stored.soft_state is not None:
                self.soft_states[name] = stored.soft_state
                restore_soft_state(service, stored.soft_state)
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

    # --- shared stores ----------------------------------------------------------------------------

    def refresh(self, store: ShardStore, signature: int, *, now_ms: int) -> set[str]:
        """Read the services again that peers have changed, and return their names."""
        if signature == self.signature:
            return set()
        versions = store.versions()
        changed = {name for name, version in versions.items() if self._version(name) != version}
        for name in changed:
            self._read_again(store, name, now_ms=now_ms)
        self.signature = signature
        self.is_complete = True
        return changed

    def _version(self, name: str) -> int | None:
        return self.versions.get(name) if name in self.services else None

    def _read_again(self, store: ShardStore, name: str, *, now_ms: int) -> None:
        before = self.services.pop(name, None)
        self.is_complete = False
        after = self.find(store, name, now_ms=now_ms)
        assert after is not None, "services are never deleted"
        if before is not None:
            carry_over(before, after)
            if name in self.soft_states:
                restore_soft_state(after, self.soft_states[name])
            self.to_notify.setdefault(name, set()).update(push_due(before, after))

    def read_heartbeats(self, store: ShardStore, *, now_ms: int) -> None:
        """Read the heartbeats that peers have received, before a rule judges members by them."""
        names = {number: name for name, number in self.numbers.items()}
        for number, worker_id, seen_ms in store.seen_since(self.heartbeats_read_ms):
            service = self.services.get(names.get(number, ""))
            member = None if service is None else service.members.get(worker_id)
            if service is not None and member is not None and seen_ms > member.seen_ms:
                service.members[worker_id] = replace(member, seen_ms=seen_ms)
        self.heartbeats_read_ms, self.has_unread_heartbeats = now_ms, False

    def note_version(self, store: ShardStore, name: str, *, is_changed: bool) -> None:
        """Raise the version of a service for the peers, if the service has changed."""
        soft_state = soft_state_of(self.services[name])
        if is_changed or soft_state != self.soft_states.get(name):
            self.versions[name] = version = self.versions.get(name, 0) + 1
            self.soft_states[name] = soft_state
            self.signature += 1
            self.touched.add(name)
            store.set_version(self.numbers[name], version, soft_state)

    # --- the end of a batch -----------------------------------------------------------------------

    def commit(self) -> None:
        """Note that the store now holds all changes of the batch."""
        self.touched.clear()
        self.to_notify.clear()
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
            self.versions.pop(name, None)
            self.soft_states.pop(name, None)
            self.signature = -1
            self.is_complete = False
        self.touched.clear()
        self.has_written_seen = False
