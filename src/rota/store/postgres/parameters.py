"""Conversion of values to PostgreSQL and back.

Numbers and texts are sent as text without a type: the server derives the type from the context.
Many rows are sent as one array a column. PostgreSQL's text cannot hold a NUL, and ours may: it is
sent and stored as two other characters, chosen so that the order of texts stays the same.
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from rota.store.postgres.dialect import Query

TEXT, BINARY = Format.TEXT, Format.BINARY
BYTEA_OID, TEXT_OID = 17, 25
_NULL = struct.pack("!i", -1)
_length = struct.Struct("!i").pack
_header = struct.Struct("!iiIii").pack  # dimensions, has NULLs, type, how many, the first index

# Below every other character, and in the order of those they stand for.
ESCAPE = "\x01"
NUL_ESCAPED = ESCAPE + "\x01"
ESCAPE_ESCAPED = ESCAPE + "\x02"

Encoded = tuple[list[Buffer | None], list[Format]]


def escaped(text: str) -> str:
    if ESCAPE in text:
        text = text.replace(ESCAPE, ESCAPE_ESCAPED)
    return text.replace("\0", NUL_ESCAPED) if "\0" in text else text


def unescaped(text: str) -> str:
    return text.replace(NUL_ESCAPED, "\0").replace(ESCAPE_ESCAPED, ESCAPE)


class TextLoader(Loader):
    """Reads texts back."""

    format = BINARY

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return unescaped(text) if ESCAPE in text else text


# --- one row of parameters ----------------------------------------------------------------------


def encoded(query: Query, parameters: Mapping[str, object]) -> Encoded:
    """Encode the parameters of a statement that runs once."""
    values: list[Buffer | None] = []
    formats: list[Format] = []
    for name, kind in query.types.items():
        one = parameters[name]
        if isinstance(one, bytes | memoryview | bytearray):
            values.append(one)
            formats.append(BINARY)
            continue
        formats.append(TEXT)
        if one is None:
            values.append(None)
        elif isinstance(one, list):
            values.append(_set_of(one))
        else:
            text = glob_to_regex(str(one)) if kind == "glob" else _text(one)
            values.append(text.encode())
    return values, formats


def _text(one: object) -> str:
    if isinstance(one, str):
        return escaped(str.__str__(one))
    # A number is a number also where a truth value is meant: '1' is true.
    return str(int(one)) if isinstance(one, bool) else str(one)


def _set_of(values: Sequence[object]) -> bytes:
    if values and isinstance(values[0], str):
        return f"{{{','.join(_quoted(str(one)) for one in values)}}}".encode()
    return f"{{{','.join(map(str, values))}}}".encode()


def _quoted(text: str) -> str:
    inner = escaped(str.__str__(text)).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


# --- many rows of parameters --------------------------------------------------------------------


def encoded_columns(
    query: Query, names: Sequence[str], rows: Sequence[Sequence[object]]
) -> Encoded:
    """Encode the parameters of a statement that runs for many rows: one array a column."""
    values: list[Buffer | None] = []
    formats: list[Format] = []
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    for name, kind in query.types.items():
        assert kind is not None, f"a set-based query names its types: {query.text!r}"
        encode, form = _COLUMNS[kind]
        values.append(encode(columns[name]))
        formats.append(form)
    return values, formats


def _numbers(column: Iterable[object]) -> bytes:
    listed = ["NULL" if one is None else str(one) for one in column]
    return f"{{{','.join(listed)}}}".encode()


def _blobs(column: Sequence[object]) -> bytes:
    return _array(BYTEA_OID, [None if one is None else _bytes(one) for one in column])


def _texts(column: Sequence[object]) -> bytes:
    return _array(TEXT_OID, [None if one is None else _text(one).encode() for one in column])


def _bytes(one: object) -> bytes:
    assert isinstance(one, bytes | memoryview | bytearray)
    return bytes(one)


def _array(kind: int, items: Sequence[bytes | None]) -> bytes:
    parts = [_header(1, 1, kind, len(items), 1)]
    for one in items:
        if one is None:
            parts.append(_NULL)
        else:
            parts += (_length(len(one)), one)
    return b"".join(parts)


_COLUMNS: dict[str, tuple[Callable[[Sequence[object]], bytes], Format]] = {
    "bigint[]": (_numbers, TEXT),
    "bytea[]": (_blobs, BINARY),
    "text[]": (_texts, BINARY),
}


# --- patterns -----------------------------------------------------------------------------------

_ONE = f"(?:{ESCAPE}[\x01\x02]|[^{ESCAPE}])"  # any one character, as it is kept
_SPECIAL = re.compile(r"([\\^$.|?*+()\[\]{}])")


def glob_to_regex(pattern: str) -> str:
    """SQLite's GLOB as a regular expression of PostgreSQL's, for texts as they are kept."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        sign = pattern[place]
        place += 1
        if sign == "*":
            parts.append(".*")
        elif sign == "?":
            parts.append(_ONE)
        elif sign == "[":
            found, place = _class(pattern, place)
            parts.append(found)
        else:
            parts.append(_SPECIAL.sub(r"\\\1", escaped(sign)))
    return f"^(?:{''.join(parts)})$"


def _class(pattern: str, place: int) -> tuple[str, int]:
    """A class of characters whose bracket has just been read, and where the pattern goes on."""
    is_negated = pattern[place : place + 1] == "^"
    start = place + is_negated
    end = pattern.find("]", start + 1)  # one that comes first is a member
    if end < 0:
        return "(?!)", len(pattern)  # never closed: matches nothing
    members = _members(pattern[start:end])
    if not members:
        return (_ONE if is_negated else "(?!)"), end + 1
    if is_negated:
        return f"(?:{ESCAPE}[\x01\x02]|[^{ESCAPE}{members}])", end + 1
    return f"[{members}]", end + 1


def _members(inner: str) -> str:
    members: list[str] = []
    place = 0
    while place < len(inner):
        first = inner[place]
        if inner[place + 1 : place + 2] == "-" and place + 2 < len(inner):
            last = inner[place + 2]
            if first <= last:
                members.append(f"{_member(first)}-{_member(last)}")
            place += 3
        else:
            members.append(_member(first))
            place += 1
    return "".join(members)


def _member(sign: str) -> str:
    return "\\" + sign if sign in "\\]^-[" else sign
