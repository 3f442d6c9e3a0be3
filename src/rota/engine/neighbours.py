"""Who else works on this store? Each coordinator says that it is there, and sees who no longer is.

What a coordinator has in memory alone goes with it, and is missed by nobody but its own callers. Of
what it has in the store only one thing speaks for callers that were connected to it: their places
in line for locks. When it is gone, so are they.
"""

from msgspec.structs import replace

from rota.core.replicas import FORGOTTEN_MS, SILENT_MS, BeatReplica, Counted, Replica
from rota.store.database import Transaction
from rota.store.locks import Locks
from rota.store.replicas import Replicas


def note_replica(
    tx: Transaction, event: BeatReplica, counts: tuple[Counted, ...], *, now_ms: int
) -> list[Replica]:
    """Say that a coordinator is there, and what it has counted; all that are, it included."""
    replicas, locks = Replicas(tx), Locks(tx)
    if event.is_leaving:
        replicas.drop(event.replica.name)
        locks.leave_lines(event.replica.name, now_ms=now_ms)
        return []
    replicas.beat(replace(event.replica, seen_ms=now_ms, counts=counts))
    for name in replicas.silent(now_ms - SILENT_MS):
        locks.leave_lines(name, now_ms=now_ms)
    replicas.forget(now_ms - FORGOTTEN_MS)
    return replicas.every()
