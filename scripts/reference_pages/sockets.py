"""The page on the WebSocket: its envelope, its messages, and what comes unasked."""

from collections.abc import Iterable
from typing import Any

import msgspec

from reference_pages.http import kind
from reference_pages.markdown import code, codes, document, sentence, table
from reference_pages.sources import comments
from rota.core.access import ALLOWED, Scope
from rota.gateways.websocket import connection
from rota.gateways.websocket.session.dispatcher import ROUTES
from rota.gateways.websocket.session.routing import Route
from rota.messages.sessions import FRAME_ERRORS, MSGPACK, PUSHED, Envelope

ENVELOPE = {
    "to": "Address: `coordinator:` and the name of a queue, or `worker:` and a worker's id.",
    "from": "Who says it. Read by `register_worker`, and by others that name no `workerId`.",
    "type": "What is wanted.",
    "payload": "What it is about, by type.",
    "id": "Any value. Comes back as `replyTo`.",
    "timestamp": "When, in milliseconds. Ours have one; yours are not looked at.",
    "replyTo": "In a reply: the `id` of what it answers.",
    "taskId": "A task's id, beside the payload, where a message is about one.",
}
CLOSES = ("GOING_AWAY", "POLICY", "RESTARTING", "SLOW_READER")


def page() -> str:
    return document(
        "# WebSocket",
        "`GET /ws`, or `GET /ws?session=NAME`, on the port of the HTTP API. How to use it: "
        "[Talk over a WebSocket](../how-to/talk-over-a-websocket.md). A frame is one envelope, or "
        f"an array of them, in JSON; with the subprotocol `{MSGPACK}`, in MessagePack. Fields "
        "that are not known are passed over.",
        "## Envelope",
        table(("field", "meaning"), ((code(name), text) for name, text in _envelope())),
        '`{"type": "ping"}` is answered with `{"type": "pong"}`, and `HEARTBEAT_PING` to '
        "`__system__` with `HEARTBEAT_PONG` from it and the same `id`.",
        "## Messages",
        "The reply's `type` is that of the message with `Response` behind it. What is refused is "
        'answered with `{"error", "code"}`; the codes are those of [Errors](errors.md). *Scopes* '
        "are those of a token that may say this; on loopback none is needed.",
        table(
            ("to", "type", "payload", "reply", "addressed to", "scopes", "meaning"),
            map(_row, ROUTES),
        ),
        "## What comes unasked",
        table(("type", "meaning"), ((code(name), text) for name, text in PUSHED.items())),
        "## Codes of `Error` frames",
        table(("code", "meaning"), ((code(name), text) for name, text in FRAME_ERRORS.items())),
        "## Codes of closes",
        table(("code", "meaning"), _closes()),
        "## Payloads",
        *_structures(),
    )


def _envelope() -> Iterable[tuple[str, str]]:
    names = [field.encode_name for field in msgspec.structs.fields(Envelope)]
    missing = set(names) - ENVELOPE.keys()
    if missing:
        raise SystemExit(f"the page on the WebSocket says nothing of {missing}")
    return ENVELOPE.items()


def _row(route: Route) -> tuple[str, ...]:
    return (
        "any" if route.kind == "any" else f"`{route.kind}:`",
        code(route.type),
        _named(route.payload),
        _named(route.answer),
        code(route.proxy),
        codes(scope for scope in Scope if route.action in ALLOWED[scope]),
        route.summary,
    )


def _named(struct: Any) -> str:
    return "" if struct is None else f"[{struct.__name__}](#{struct.__name__.lower()})"


def _closes() -> Iterable[tuple[str, str]]:
    said = comments(connection)
    return ((code(getattr(connection, name)), sentence(said[name])) for name in CLOSES)


def _structures() -> Iterable[str]:
    used = (one for route in ROUTES for one in (route.payload, route.answer) if one is not None)
    structs = list(dict.fromkeys(used))
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/{name}")
    for name in sorted(schemas):
        struct = next((one for one in structs if one.__name__ == name), None)
        yield document(f"### {name}", _fields(struct, schemas[name]))


def _fields(struct: Any, schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return f"One of {codes(schema['enum'])}. See [States](states.md)."
    if "prefixItems" in schema:
        kinds = ", ".join(kind(one) for one in schema["prefixItems"])
        return f"{sentence(schema.get('description', ''))} An array of {kinds}.".strip()
    said = {} if struct is None else _said(struct)
    rows = [
        (
            code(name),
            kind(field),
            "required" if name in schema.get("required", ()) else "",
            sentence(said.get(name, "")),
        )
        for name, field in schema["properties"].items()
    ]
    return table(("field", "kind", "", "meaning"), rows)


def _said(struct: Any) -> dict[str, str]:
    """What the code says of each field, by its name on the wire; those of the bases, too."""
    found: dict[str, str] = {}
    for one in reversed(struct.__mro__):
        if issubclass(one, msgspec.Struct) and one is not msgspec.Struct:
            found |= comments(one)
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {names[name]: text for name, text in found.items() if name in names}
