"""Where is a shard worker's coordinator, and how is it spoken to? Arguments first, then variables.

Over ZeroMQ if there is an address for that, otherwise over HTTP. Checkpoints always go over HTTP,
on a client that is opened when the first of them is asked for.
"""

import os
import threading

from rota.errors import Invalid
from rota.sdk.client import Client
from rota.sdk.shards.lines import Hearer, Line


class Coordinates:
    def __init__(
        self,
        *,
        url: str | None,
        token: str | None,
        zmq: str | None,
        zmq_public_key: str | None,
        zmq_secret_key: str | None,
        zmq_server_key: str | None,
    ) -> None:
        self._url = _given(url, "ROTA_URL")
        self._token = token
        self._zmq = _given(zmq, "ROTA_ZMQ")
        self._keys = (
            _given(zmq_public_key, "ROTA_ZMQ_PUBLIC_KEY"),
            _given(zmq_secret_key, "ROTA_ZMQ_SECRET_KEY"),
            _given(zmq_server_key, "ROTA_ZMQ_SERVER_KEY"),
        )
        if any(self._keys) and not all(self._keys):
            raise Invalid(
                "CURVE takes three keys: the worker's public and secret one, and the server's"
            )
        self._client: Client | None = None
        self._lock = threading.Lock()

    def open_line(self, hearer: Hearer) -> Line:
        """A line for one incarnation."""
        if self._zmq is None:
            from rota.sdk.shards.http import HttpLine  # noqa: PLC0415 - only one of the two is used

            return HttpLine(self.connect(), hearer)
        from rota.sdk.shards.zeromq import Keys, ZeroMQLine  # noqa: PLC0415 - as above

        public_key, secret_key, server_key = self._keys
        keys = None
        if public_key and secret_key and server_key:
            keys = Keys(public_key=public_key, secret_key=secret_key, server_key=server_key)
        return ZeroMQLine(self._zmq, keys, hearer)

    def connect(self) -> Client:
        """From any thread: the one client for all that goes over HTTP."""
        with self._lock:
            if self._client is None:
                if self._zmq is not None and self._url is None:
                    # Without a URL we would end up at a coordinator of our own.
                    raise Invalid("checkpoints go over HTTP: give the worker a url, or ROTA_URL")
                self._client = Client.connect(self._url, self._token)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _given(argument: str | None, variable: str) -> str | None:
    """An argument counts even when it is empty: then it says no."""
    return (os.environ.get(variable) if argument is None else argument) or None
