"""What may the holder of a key say, as the key file stands now?

The file is looked at every few seconds while the door is in use, so that a client can be let in or
put out without a restart. One that cannot be used any more is complained of, and the keys that were
read before it stay good.
"""

import time
from collections.abc import Callable
from pathlib import Path

from rota.errors import Forbidden, Invalid
from rota.gateways.zeromq.complaints import Complaints
from rota.gateways.zeromq.keys import read_keys

LOOK_EVERY_S = 3.0  # how long a client that was put out may still be heard
MOST_REMEMBERED = 100_000  # (client, service, worker) that were found to fit

Version = tuple[int, int, int]  # of a file


class Keyring:
    def __init__(
        self, path: Path, complaints: Complaints, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file; raises `Invalid` when it cannot be used."""
        self._path = path
        self._complaints = complaints
        self._now_s = now_s
        self._look_at_s = now_s() + LOOK_EVERY_S
        self._version = _version(path)
        keys = read_keys(path)
        self.secret = keys.coordinator.secret
        self.public = keys.coordinator.public
        self._clients = {client.public: client for client in keys.client}
        self._fitting: set[tuple[str, str, str]] = set()

    def is_known(self, public: str) -> bool:
        self._look()
        return public in self._clients

    def check(self, public: str, service: str, worker_id: str) -> None:
        """Raise `Forbidden` unless the key may speak for this worker of this service."""
        self._look()
        asked = public, service, worker_id
        if asked in self._fitting:
            return
        client = self._clients.get(public)
        if client is None:
            raise Forbidden("the key is no longer known")
        if not client.may_speak_for(service, worker_id):
            raise Forbidden(
                f"the key {client.name!r} may not speak for worker {worker_id!r} of service "
                f"{service!r}"
            )
        if len(self._fitting) >= MOST_REMEMBERED:
            self._fitting.clear()
        self._fitting.add(asked)

    def _look(self) -> None:
        now_s = self._now_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            keys = read_keys(self._path)
        except Invalid as error:
            self._complaints.about("keys not read", code="keys", problem=error.detail)
            return
        if keys.coordinator.secret != self.secret:
            self._complaints.about(
                "the coordinator's key has changed: restart to use it", code="coordinator_key"
            )
        self._clients = {client.public: client for client in keys.client}
        self._fitting.clear()


def _version(path: Path) -> Version | None:
    """Differs when the file was changed; None: it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
