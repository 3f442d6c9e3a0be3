"""What was committed, and was it all right?"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from rota.core.kv import KvEntry
from rota.core.locks import LockState, Numbers
from tests.simulation.shards.ledger import demand


@dataclass
class Ledger:
    """The rows of locks and values; each change is held against the promises."""

    locks: dict[str, LockState] = field(default_factory=dict)
    entries: dict[str, KvEntry] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: {"lock": 0, "memory": 0})
    commits: int = 0
    owners: dict[int, str] = field(default_factory=dict)  # who ever had which fence
    highest: int = 0
    serial: int = 0  # of the entry that is there: none is ever the same as one before
    additions: int = 0

    def numbers(self, name: str) -> Numbers:
        return Numbers(self.counters[name])

    def restart(self) -> None:
        """What a coordinator finds, and does first, when it comes back."""
        for lock in list(self.locks.values()):
            self.put_lock(replace(lock, waiters=()))

    def put_lock(self, lock: LockState) -> None:
        if lock.owner is None and not lock.waiters:
            self.locks.pop(lock.name, None)
            return
        self.locks[lock.name] = lock
        if lock.owner is not None:
            owner = self.owners.setdefault(lock.fence, lock.owner)
            demand(owner == lock.owner, "two had one fence:", lock.fence, owner, lock.owner)
            demand(lock.fence >= self.highest, "a fence fell:", lock.fence, self.highest)
            self.highest = lock.fence

    def put_entry(self, key: str, entry: KvEntry | None, *, based_on: int) -> None:
        """Keep a value, or none; it was decided on the one that had this serial number."""
        before = self.entries.pop(key, None)
        if before is not None:  # that there is none is the same each time
            demand(based_on == self.serial, "decided on another value:", based_on, self.serial)
        self.serial += 1
        if entry is not None:
            self.entries[key] = entry
            self.additions += 1
            count = 0 if before is None else int(before.value)
            demand(int(entry.value) == count + 1, "an addition was lost or doubled:", count, entry)
