"""The page on events: every type, what it is about, and what it carries."""

from reference_pages.markdown import code, codes, document, table
from reference_pages.sources import comments
from rota.core.events import EVENT_KINDS
from rota.core.limits import MAX_SINGLE_EVENTS
from rota.engine.events.stream import End
from rota.messages import EventView


def page() -> str:
    return document(
        "# Events",
        "The events of a coordinator, by `GET /api/events` ([HTTP API](http.md)), "
        "`rota events` ([command line](cli.md)) and `client.events()`. How to use them: "
        "[Follow what happens](../how-to/follow-events.md).",
        "## Fields",
        table(("field", "meaning"), _fields()),
        "## Types",
        "Fields of `data` that do not apply are left out. More than "
        f"{MAX_SINGLE_EVENTS} tasks of one queue that fare alike in one commit are one event: its "
        "subject is the queue, `count` says how many there are, `first_id` and `last_id` which is "
        "the first and the last of them. Each failure has its own event.",
        table(("type", "subject", "data", "meaning"), _types()),
        "## Blocks of a stream",
        "With `Accept: text/event-stream`. Each event is a block with its number as `id`, its type "
        "as `event`, and the fields above as `data`. Beside them:",
        table(("block", "meaning"), _blocks()),
    )


def _fields() -> list[tuple[str, str]]:
    said = comments(EventView) | {
        "at_ms": "when it was committed",
        "data": "more about it, by type",
    }
    return [(code(name), _sentence(said[name])) for name in EventView.__struct_fields__]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _types() -> list[tuple[str, str, str, str]]:
    return [
        (code(name), kind.subject, codes(kind.data), kind.meaning)
        for name, kind in EVENT_KINDS.items()
    ]


def _blocks() -> list[tuple[str, str]]:
    said = comments(End)
    ends = "; ".join(f"{code(end.value)}: {said[end.name].split(';')[0]}" for end in End)
    return [
        ("the first", "`retry`, and as `id` the number after which the stream begins."),
        (code("gap"), "Some of what the reader missed is forgotten: all before `oldest_seq`."),
        (code(": alive"), "Nothing happened for a while; `id` is the number up to which."),
        (code("end"), f"The last one. `reason` is {ends}."),
    ]
