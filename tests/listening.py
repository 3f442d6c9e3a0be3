"""An HTTP server that nothing should ever speak to."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Listener(http.server.ThreadingHTTPServer):
    """Counts the connections made to it, and answers none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.connections = 0

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - its form
        self.connections += 1
        return False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/schema.json"


@contextmanager
def listening() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def remote_schemas(address: str) -> list[dict[str, Any]]:
    """Schemas that lead to an address, each in its own way."""
    folder, _, file = address.rpartition("/")
    draft_7 = "http://json-schema.org/draft-07/schema#"
    draft_2019 = "https://json-schema.org/draft/2019-09/schema"
    return [
        {"$ref": address},
        {"$ref": f"{address}#/$defs/a"},
        {"$schema": address},
        {"$dynamicRef": address},
        {"$schema": draft_2019, "$recursiveRef": address},
        {"$id": f"{folder}/other.json", "$ref": file},
        {"properties": {"a": {"$id": f"{folder}/other.json", "items": {"$ref": file}}}},
        {"properties": {"a": {"$schema": address, "type": "string"}}},
        {"properties": {"const": {"$ref": address}}},
        {"$defs": {"unused": {"anyOf": [True, {"$ref": address}]}}},
        {"$schema": draft_7, "definitions": {"a": {"$ref": address}}},
        {"unknown": {"deeper": [{"$ref": address}]}},
        {"dependencies": {"a": {"$ref": address}}},
    ]
