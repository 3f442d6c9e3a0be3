"""Announces this coordinator to its peers on a shared store."""

import secrets
import socket

from rota import __version__
from rota.core.replicas import BeatReplica, Replica
from rota.engine.clock import Clock
from rota.settings import Settings


class Presence:
    """Identity and heartbeat of this coordinator among its peers."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._host = socket.gethostname()
        self.name = settings.replica_name or f"{self._host}-{secrets.token_hex(4)}"
        self.url: str | None = None  # where it is reached; None: not yet, or not at all
        self.started_at_ms = clock.now_ms()

    @property
    def replica(self) -> Replica:
        return Replica(
            name=self.name,
            url=self.url,
            host=self._host,
            version=__version__,
            started_at_ms=self.started_at_ms,
            seen_ms=self._clock.now_ms(),
        )

    def beat(self, *, is_leader: bool) -> BeatReplica:
        """The heartbeat of this moment."""
        # One of them is enough: to find silent peers, the writer waits for a read.
        return BeatReplica(replica=self.replica, finds_silent=is_leader)

    @property
    def goodbye(self) -> BeatReplica:
        """The last heartbeat before a stop, so that peers need not wait for the time limit."""
        return BeatReplica(replica=self.replica, is_leaving=True)
