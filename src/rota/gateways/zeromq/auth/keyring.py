"""The keys of clients, and what each may speak for, as of the key file.

The file is checked for changes every few seconds while the gateway is in use, so that clients can
be added and removed without a restart. A file that cannot be read any more is logged, and the keys
that were read before stay valid.
"""

import time
from collections.abc import Callable
from pathlib import Path

from rota.core.access import Caller
from rota.errors import Forbidden, Invalid
from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq.auth.keys import read_keys

CHECK_EVERY_S = 3.0  # how long a removed client may still send
MAX_CACHED = 100_000  # (client, service, worker) that were found to be allowed

Version = tuple[int, int, int]  # of a file


class Keyring:
    def __init__(
        self, path: Path, throttled_log: ThrottledLog, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file; raises `Invalid` when it cannot be used."""
        self._path = path
        self._throttled_log = throttled_log
        self._now_s = now_s
        self._check_at_s = now_s() + CHECK_EVERY_S
        self._version = _version(path)
        keys = read_keys(path)
        self.secret = keys.coordinator.secret
        self.public = keys.coordinator.public
        self._clients = {client.public: client for client in keys.client}
        self._allowed: dict[tuple[str, str, str], Caller] = {}

    def is_known(self, public: str) -> bool:
        self._reload_if_changed()
        return public in self._clients

    def check(self, public: str, service: str, worker_id: str) -> Caller:
        """The client that has the key; raises `Forbidden` unless it may speak for this worker."""
        self._reload_if_changed()
        asked = public, service, worker_id
        known = self._allowed.get(asked)
        if known is not None:
            return known
        client = self._clients.get(public)
        if client is None:
            raise Forbidden("the key is no longer known")
        if not client.may_speak_for(service, worker_id):
            raise Forbidden(
                f"the key {client.name!r} may not speak for worker {worker_id!r} of service "
                f"{service!r}"
            )
        if len(self._allowed) >= MAX_CACHED:
            self._allowed.clear()
        caller = client.caller()
        self._allowed[asked] = caller
        return caller

    def _reload_if_changed(self) -> None:
        now_s = self._now_s()
        if now_s < self._check_at_s:
            return
        self._check_at_s = now_s + CHECK_EVERY_S
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            keys = read_keys(self._path)
        except Invalid as error:
            self._throttled_log.warn("keys_unreadable", code="keys", problem=error.detail)
            return
        if keys.coordinator.secret != self.secret:
            self._throttled_log.warn(
                "coordinator_key_changed", code="coordinator_key", hint="restart to use it"
            )
        self._clients = {client.public: client for client in keys.client}
        self._allowed.clear()


def _version(path: Path) -> Version | None:
    """Differs when the file was changed; None: it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
