"""The page on errors: the tree, and what each code means."""

import re
from collections.abc import Iterator

from reference_pages.markdown import code, document, sentence, table
from rota import errors
from rota.errors import RotaError, StoreError
from rota.sdk import handles
from rota.sdk.arguments import InvalidArguments
from rota.sdk.transport import transport

_LINE = re.compile(r"^[│├└─ ]*(?P<name>[A-Z]\w+)\s*(?P<status>\d{3})?\s+(?P<text>\S.*)$")

# Raised by the SDK inside a program; no coordinator answers with these.
OF_THE_SDK = (
    handles.TaskFailed,
    handles.TaskCancelled,
    InvalidArguments,
    transport.NotSent,
)


def page() -> str:
    said = _meanings()
    kinds = [kind for kind in _below(RotaError) if kind.__module__ == errors.__name__]
    answered = [kind for kind in kinds if not issubclass(kind, StoreError)]
    not_answered = [kind for kind in kinds if issubclass(kind, StoreError)]
    return document(
        "# Errors",
        "Over HTTP an error is `application/problem+json`: `code`, `title`, `status`, `detail`, "
        "and beside them the facts of the case as fields of their own. Match on `code`: it is "
        "stable. In Python each is a class in `rota.errors` under `RotaError` (`error`), and the "
        "SDK raises the class of the code it was answered. Answers with 429 and 503 carry "
        "`Retry-After`. The paths under `/api/jobs` say the same in another form: "
        '`{"success": false, "error": …, "code": …}`.',
        f"```text\n{_drawing()}\n```",
        "## Answered by a coordinator",
        table(("code", "status", "class", "meaning"), (_row(kind, said) for kind in answered)),
        "## When a coordinator cannot start",
        "Never answered to a client: `rota up` and `rota migrate` print them and end with exit "
        "code 2.",
        table(("code", "class", "meaning"), (_short_row(kind, said) for kind in not_answered)),
        "## Raised by the SDK alone",
        table(("code", "class", "meaning"), (_sdk_row(kind) for kind in OF_THE_SDK)),
    )


def _below(kind: type[RotaError]) -> Iterator[type[RotaError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def _drawing() -> str:
    lines = (errors.__doc__ or "").splitlines()
    return "\n".join(lines[lines.index("RotaError") :][: sum("── " in line for line in lines) + 1])


def _meanings() -> dict[str, str]:
    """What the drawing says of each class."""
    lines = filter(None, map(_LINE.match, _drawing().splitlines()))
    return {line["name"]: line["text"] for line in lines}


def _meaning(kind: type[RotaError], said: dict[str, str]) -> str:
    """What the drawing or the class itself says; of a mere name, what its title says."""
    own_docstring = vars(kind).get("__doc__")
    return sentence(own_docstring or said.get(kind.__name__) or kind.title)


def _row(kind: type[RotaError], said: dict[str, str]) -> tuple[str, ...]:
    return code(kind.code), str(kind.status), code(kind.__name__), _meaning(kind, said)


def _short_row(kind: type[RotaError], said: dict[str, str]) -> tuple[str, ...]:
    return code(kind.code), code(kind.__name__), _meaning(kind, said)


def _sdk_row(kind: type[RotaError]) -> tuple[str, ...]:
    first, *_ = (kind.__doc__ or "").split("\n\n")
    return code(kind.code), code(f"{kind.__module__}.{kind.__name__}"), sentence(first)
