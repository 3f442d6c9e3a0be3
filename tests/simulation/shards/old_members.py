"""Members of protocol 1, written against the seed's messages: no epochs, no generations, no lease.

Such a client takes what it was told last for what it has, and acts on it for as long as it lives.
"""

from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, Assignment
from tests.simulation.shards.coordinator import SERVICE
from tests.simulation.shards.processes import Process, Surroundings

INTERVAL_MS = 5_000
PATIENCE_MS = 20_000  # for the first answer, which may take a lease


class OldMember(Process):
    is_new_protocol = False

    def __init__(
        self, world: Surroundings, worker_id: str, shard_count: int, *, is_deaf: bool
    ) -> None:
        super().__init__(world, worker_id, shard_count)
        self.is_deaf = is_deaf  # reads its first answer and no other
        self._assigned: tuple[int, ...] | None = None
        self._register()

    def shards(self) -> set[int]:
        return set(self._assigned or ())

    def is_acting(self, shard: int) -> bool:
        return not self.is_dead and self._assigned is not None and shard in self._assigned

    def _leave(self) -> None:
        self._send(LeaveMember(service=SERVICE, worker_id=self.worker_id))
        self.die()

    def _register(self) -> None:
        if self._assigned is None:
            message = RegisterMember(
                service=SERVICE,
                worker_id=self.worker_id,
                shard_count=self.shard_count,
                protocol=OLD_PROTOCOL,
            )
            self._send(message)
            self._later(PATIENCE_MS, self._register)

    def _receive(self, assignment: Assignment) -> None:
        if self._assigned is None:
            self._later(INTERVAL_MS, self._beat)
        elif self.is_deaf:
            return
        self._assigned = assignment.shards
        self.world.check_alone(self)

    def _beat(self) -> None:
        message = BeatMember(
            service=SERVICE,
            worker_id=self.worker_id,
            shard_count=self.shard_count,
            holds=self._assigned or (),
            protocol=OLD_PROTOCOL,
        )
        self._send(message)
        self._later(INTERVAL_MS, self._beat)
