"""Receives events of a coordinator, checks who sent them, and prints them as a chat would.

    export ROTA_WEBHOOK_SECRET=whsec_…     # that `rota webhooks put` has shown
    python examples/webhook_receiver.py

It uses nothing but the standard library and `rota.webhooks`.
"""

import json
import os
import sys
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import rota.webhooks
from rota import RotaError

MAX_BODY_BYTES = 128 * 1024
REMEMBERED_IDS = 10_000  # of deliveries, the newest: one may come twice


class Receiver(ThreadingHTTPServer):
    """Prints each event once."""

    def __init__(self, address: tuple[str, int], secret: str) -> None:
        super().__init__(address, Handler)
        self.secret = secret
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_new(self, message_id: str) -> bool:
        is_new = message_id not in self._seen
        self._seen[message_id] = None
        if len(self._seen) > REMEMBERED_IDS:
            self._seen.popitem(last=False)
        return is_new

    def show(self, event: dict[str, Any]) -> None:
        # A webhook with `--format slack` sends a text; the others send the event.
        text = (
            event.get("text") or f"{event['type']} {event['subject']} {json.dumps(event['data'])}"
        )
        print(text, flush=True)


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        if size > MAX_BODY_BYTES:
            self._answer(413)
            return
        body = self.rfile.read(size)
        try:
            event = rota.webhooks.verify(dict(self.headers), body, self.server.secret)
        except (rota.webhooks.SignatureMismatch, RotaError) as error:
            print(f"refused: {error}", file=sys.stderr)
            self._answer(401)
            return
        if self.server.is_new(self.headers["webhook-id"]):
            self.server.show(event)
        # Answer soon: the coordinator waits 15 s, and then sends it again.
        self._answer(204)

    def log_message(self, *_: object) -> None:
        """Print events, not requests."""

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


def main() -> None:
    secret = os.environ.get("ROTA_WEBHOOK_SECRET")
    if not secret:
        sys.exit("set ROTA_WEBHOOK_SECRET to the secret that `rota webhooks put` has shown")
    receiver = Receiver(("127.0.0.1", int(os.environ.get("PORT", "8088"))), secret)
    print(f"listening on http://127.0.0.1:{receiver.server_port}/", flush=True)
    receiver.serve_forever()


if __name__ == "__main__":
    main()
