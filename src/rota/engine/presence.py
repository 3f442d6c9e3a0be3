"""What do the other coordinators on a store know of this one?"""

import secrets
import socket

from rota import __version__
from rota.core.replicas import BEAT_MS, BeatReplica, Replica
from rota.engine.clock import Clock
from rota.engine.duties.duty import Duty
from rota.settings import Settings


class Presence:
    """A coordinator, as the others see it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._host = socket.gethostname()
        self.name = settings.replica_name or f"{self._host}-{secrets.token_hex(4)}"
        self.url: str | None = None  # where it is reached, once it is
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

    @property
    def duty(self) -> Duty:
        """To say so, again and again."""
        return Duty(
            name="replicas",
            interval_ms=BEAT_MS,
            event=lambda _now_ms, _settings: BeatReplica(replica=self.replica),
        )

    @property
    def goodbye(self) -> BeatReplica:
        """The others need not find out by themselves that we are gone."""
        return BeatReplica(replica=self.replica, is_leaving=True)
