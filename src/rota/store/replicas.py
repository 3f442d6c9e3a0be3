"""The coordinators that share a store, and what has ended while one was cut off."""

from msgspec.structs import asdict

from rota.core.replicas import Replica
from rota.store.database import Transaction


class ReplicaStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def live(self, ids: list[int]) -> set[int]:
        """Of these tasks and runs, those that have not ended."""
        return set(self._tx.column("replicas.live", ids=ids))

    def record_heartbeat(self, replica: Replica) -> None:
        self._tx.pipeline("replicas.heartbeat", **asdict(replica))

    def all(self) -> list[Replica]:
        return self._tx.records(Replica, "replicas.all")

    def silent(self, before_ms: int) -> list[str]:
        """The coordinators without a heartbeat since this time."""
        return self._tx.column("replicas.silent", before_ms=before_ms)

    def delete(self, name: str) -> None:
        self._tx.pipeline("replicas.delete", name=name)

    def prune(self, before_ms: int) -> None:
        self._tx.pipeline("replicas.prune", before_ms=before_ms)
