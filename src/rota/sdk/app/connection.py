"""The connection of an app to its coordinator, and the end of the program that closes it."""

import atexit
import concurrent.futures.thread  # noqa: F401 - registers its shutdown first, so that it runs last
import contextlib
import threading
import weakref
from typing import Protocol

from rota.sdk.client.client import Client, embedded_url, is_embedded
from rota.tls import Verify


class Closable(Protocol):
    """An app, as the end of the program needs it."""

    def close(self) -> None: ...


class AppConnection:
    """The client of an app: connected on first use, or given by the program."""

    def __init__(
        self, app: Closable, url: str | None, token: str | None, *, verify: Verify, embedded: bool
    ) -> None:
        """`embedded`: without an address, the coordinator is inside this program."""
        self._app = app
        self.url = url  # as given; None: that of `ROTA_URL`, or of this machine
        self._token = token
        self._verify = verify
        self._embedded = embedded
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._is_own = True

    @property
    def _address(self) -> str | None:
        return embedded_url() if self._embedded and not self.url else self.url

    @property
    def embeds_coordinator(self) -> bool:
        """Whether the app connects by itself, and to a coordinator inside this program."""
        return self._is_own and is_embedded(self._address)

    def client(self) -> Client:
        """The client, connected on first use."""
        client = self._client
        if client is None:
            with self._lock:
                if self._client is None:
                    self._client = Client.connect(self._address, self._token, verify=self._verify)
                    _close_at_exit(self._app)
                client = self._client
        return client

    def use(self, client: Client) -> None:
        """Use this client from now on; the caller closes it."""
        with self._lock:
            self._client = client
            self._is_own = False

    def close(self) -> None:
        """Close a client that the app has connected, and let go of one that was given."""
        with self._lock:
            client, self._client = self._client, None
            is_own, self._is_own = self._is_own, True
        if client is not None and is_own:
            client.close()


# --- the end of the program ---------------------------------------------------------------------
#
# Workers finish and connections close while threads can still be started and joined. The
# interpreter's own `atexit` runs after the shutdown of the standard thread pools, so the hook of
# `threading` is used where it exists.

_open_apps: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_is_registered = False


def _close_at_exit(app: Closable) -> None:
    global _is_registered  # noqa: PLW0603 - once a process
    _open_apps.add(app)
    if not _is_registered:
        _is_registered = True
        register = getattr(threading, "_register_atexit", atexit.register)
        register(_close_all)


def _close_all() -> None:
    for app in list(_open_apps):
        with contextlib.suppress(Exception):  # the other apps are closed all the same
            app.close()
