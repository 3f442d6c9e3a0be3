"""What locks are for: something that is written to, and that refuses a late writer."""

from dataclasses import dataclass, field

from tests.simulation.shards.ledger import demand


@dataclass
class Resource:
    """Remembers the highest fence it has seen; that is all that fencing takes."""

    highest: int = 0
    accepted: int = 0
    refused: int = 0
    writers: dict[int, str] = field(default_factory=dict)  # by fence

    def write(self, fence: int, writer: str) -> bool:
        if fence < self.highest:
            self.refused += 1
            return False
        self.highest = fence
        self.accepted += 1
        known = self.writers.setdefault(fence, writer)
        demand(known == writer, "two wrote under one fence:", fence, known, writer)
        return True
