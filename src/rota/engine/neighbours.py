"""Who else works on this store? Each coordinator says that it is there, and sees who no longer is.

What a coordinator has in memory alone goes with it, and is missed by nobody but its own callers. Of
what it has in the store only one thing speaks for callers that were connected to it: their places
in line for locks. When it is gone, so are they.
"""

from msgspec.structs import replace

from rota.core.replicas import FORGOTTEN_MS, SILENT_MS, BeatReplica
from rota.store.database import Transaction
from rota.store.locks import Locks
from rota.store.replicas import Replicas


def note_replica(tx: Transaction, event: BeatReplica, *, now_ms: int) -> None:
    replicas, locks = Replicas(tx), Locks(tx)
    if event.is_leaving:
        replicas.drop(event.replica.name)
        locks.leave_lines(event.replica.name, now_ms=now_ms)
        return
    replicas.beat(replace(event.replica, seen_ms=now_ms))
    for name in replicas.silent(now_ms - SILENT_MS):
        locks.leave_lines(name, now_ms=now_ms)
    replicas.forget(now_ms - FORGOTTEN_MS)
