"""Where do services stand between batches? In memory, as the core works on them.

When a batch is rolled back, the services it touched are dropped; whoever needs them next reads them
from the store, as after a restart.

Where several coordinators share the store, each change of a service raises its version. One that
others have changed is read again, and what only this coordinator knows of it is carried over.
"""

from msgspec.structs import replace

from rota.core.shards.agenda import Agenda, agenda_of, carry_over, take_up, to_be_told
from rota.core.shards.members import ShardPolicy
from rota.core.shards.restoring import restored
from rota.core.shards.service import Service
from rota.store.shards import Shards


class ShardCache:
    """Services as they stand. Belongs to the writer."""

    def __init__(self, policy: ShardPolicy, *, is_shared: bool = False) -> None:
        self.policy = policy
        self.is_shared = is_shared  # others may change services, too
        self.services: dict[str, Service] = {}
        self.numbers: dict[str, int] = {}  # that the store knows them by
        self.is_complete = False  # whether every service of the store is here
        self.touched: set[str] = set()  # by the batch that is under way
        self.unwritten: dict[str, set[str]] = {}  # members by service: heard of since
        self.unwritten_since_ms: int | None = None
        self.has_written_seen = False  # the batch that is under way
        self.deaf_until_ms: int | None = None  # when the last long batch was done
        # Only where the store is shared:
        self.versions: dict[str, int] = {}
        self.agendas: dict[str, Agenda] = {}  # as they are stored
        self.signature = -1  # of all versions together, when they were last looked at
        self.untold: dict[str, set[str]] = {}  # members by service, of what others have changed
        self.heard_until_ms = 0  # all that was heard of members before this is known here
        self.has_unheard = True  # others may have heard members since

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
        if self.is_shared:
            self.versions[name] = stored.version
            if stored.agenda is not None:
                self.agendas[name] = stored.agenda
                take_up(service, stored.agenda)
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

    # --- where several share the store ------------------------------------------------------------

    def refresh(self, store: Shards, signature: int, *, now_ms: int) -> set[str]:
        """Read again what others have changed; the answer is which services that were."""
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

    def _read_again(self, store: Shards, name: str, *, now_ms: int) -> None:
        before = self.services.pop(name, None)
        self.is_complete = False
        after = self.find(store, name, now_ms=now_ms)
        assert after is not None, "services are never deleted"
        if before is not None:
            carry_over(before, after)
            if name in self.agendas:
                take_up(after, self.agendas[name])
            self.untold.setdefault(name, set()).update(to_be_told(before, after))

    def hear(self, store: Shards, *, now_ms: int) -> None:
        """Take in when members were last heard of by others: before anybody is judged by it."""
        names = {number: name for name, number in self.numbers.items()}
        for number, worker_id, seen_ms in store.seen_since(self.heard_until_ms):
            service = self.services.get(names.get(number, ""))
            member = None if service is None else service.members.get(worker_id)
            if service is not None and member is not None and seen_ms > member.seen_ms:
                service.members[worker_id] = replace(member, seen_ms=seen_ms)
        self.heard_until_ms, self.has_unheard = now_ms, False

    def note_version(self, store: Shards, name: str, *, is_changed: bool) -> None:
        """Let the others know what has changed about a service, if anything has."""
        agenda = agenda_of(self.services[name])
        if is_changed or agenda != self.agendas.get(name):
            self.versions[name] = version = self.versions.get(name, 0) + 1
            self.agendas[name] = agenda
            self.signature += 1
            self.touched.add(name)
            store.note_version(self.numbers[name], version, agenda)

    # --- the end of a batch -----------------------------------------------------------------------

    def commit(self) -> None:
        """What the batch did to services in memory is now in the store as well."""
        self.touched.clear()
        self.untold.clear()
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
            self.versions.pop(name, None)
            self.agendas.pop(name, None)
            self.signature = -1
            self.is_complete = False
        self.touched.clear()
        self.has_written_seen = False
