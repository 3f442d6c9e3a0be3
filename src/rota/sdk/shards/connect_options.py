"""The address of a shard worker's coordinator and its transport: arguments, then variables.

The worker uses ZeroMQ if it has an address for it, otherwise HTTP. Checkpoints always use HTTP, on
a client that is connected on first use.
"""

import os
import threading

from rota.errors import Invalid
from rota.sdk.client.client import Client
from rota.sdk.shards.transport import AssignmentListener, ShardTransport
from rota.tls import Verify


class ConnectOptions:
    def __init__(
        self,
        *,
        url: str | None,
        token: str | None,
        verify: Verify,
        zmq: str | None,
        zmq_public_key: str | None,
        zmq_secret_key: str | None,
        zmq_server_key: str | None,
    ) -> None:
        self._url = _given(url, "ROTA_URL")
        self._token = token
        self._verify = verify
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

    def open_transport(self, listener: AssignmentListener) -> ShardTransport:
        """A transport for one incarnation."""
        if self._zmq is None:
            from rota.sdk.shards.http import HttpShardTransport  # noqa: PLC0415 - one of two is used

            return HttpShardTransport(self.connect(), listener)
        from rota.sdk.shards.zeromq import CurveKeys, ZeroMqShardTransport  # noqa: PLC0415 - as above

        public_key, secret_key, server_key = self._keys
        keys = None
        if public_key and secret_key and server_key:
            keys = CurveKeys(public_key=public_key, secret_key=secret_key, server_key=server_key)
        return ZeroMqShardTransport(self._zmq, keys, listener)

    def connect(self) -> Client:
        """The client for everything over HTTP; callable from any thread."""
        with self._lock:
            if self._client is None:
                if self._zmq is not None and self._url is None:
                    # Without a URL the client would ask the coordinator of this machine.
                    raise Invalid("checkpoints go over HTTP: give the worker a url, or ROTA_URL")
                self._client = Client.connect(self._url, self._token, verify=self._verify)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _given(argument: str | None, variable: str) -> str | None:
    """The argument, or else the variable; an empty argument overrides the variable."""
    return (os.environ.get(variable) if argument is None else argument) or None
