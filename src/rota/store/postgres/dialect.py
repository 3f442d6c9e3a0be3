"""The named queries in PostgreSQL's dialect.

Most queries read the same on both databases. What differs in form only is rewritten here: named
parameters, sets of values, and the words that tell SQLite the order of a join. What differs in
substance has an override in `sql/postgres/`.
"""

import re
from functools import cache
from typing import NamedTuple

from rota.store.database import load_queries

_TEXTS = "CAST(wanted.value AS TEXT)"
_IN_TEXTS = re.compile(r"IN \(SELECT CAST\(value AS TEXT\) FROM carray\((:\w+)\)\)")
_IN_NUMBERS = re.compile(r"IN carray\((:\w+)\)")
_ARRAY = re.compile(r"carray\((:\w+)\) AS (\w+)")
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)(?:::(\w+(?:\[\])?))?")
_SELECT = re.compile(r"\s*(SELECT|WITH)\b")
_CROSS_JOIN = re.compile(
    r"CROSS JOIN (?P<table>\w+) AS (?P<alias>\w+)\s+ON\s+(?P<condition>.+?)"
    r"(?=\s+(?:CROSS JOIN|LEFT JOIN|WHERE|GROUP BY|ORDER BY|LIMIT|ON CONFLICT)\b|\Z)",
    re.DOTALL,
)


class Query(NamedTuple):
    text: bytes
    types: dict[str, str | None]  # of each parameter, in their order; None: the query names none
    is_change: bool
    guarded_text: bytes  # with one more parameter: the number of rows that it has to change


@cache
def postgres_queries() -> dict[str, Query]:
    return {name: translate(text) for name, text in load_queries("postgres").items()}


def translate(text: str) -> Query:
    types: dict[str, str | None] = {}
    places: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        name, kind = found.groups()
        place = f"${places.setdefault(name, len(places) + 1)}"
        types[name] = types.get(name) or kind
        # `parameters.py` turns a pattern into a regular expression.
        return f"{place}::text" if kind == "glob" else place + (f"::{kind}" if kind else "")

    encoded = _PARAMETER.sub(numbered, _reworded(text)).encode()
    guarded = (
        b"WITH changed AS (%b RETURNING 1) " % encoded
        + b"SELECT check_count(count(*), $%d::bigint) FROM changed" % (len(types) + 1)
    )
    return Query(encoded, types, not _SELECT.match(text), guarded)


def _reworded(text: str) -> str:
    kind = "text" if _TEXTS in text else "bigint"
    text = _IN_TEXTS.sub(r"= ANY(\1::text[])", text.replace(_TEXTS, "wanted.value"))
    text = _IN_NUMBERS.sub(r"= ANY(\1::bigint[])", text)
    text = _ARRAY.sub(rf"unnest(\1::{kind}[]) AS \2 (value)", text)
    text = re.sub(r" INDEXED BY \w+", "", text)
    return _CROSS_JOIN.sub(_in_order, text)


def _in_order(found: re.Match[str]) -> str:
    """Return a join that is made in the order in which it is written.

    The planner does not look into a subquery with an offset. So it looks up each row of the left
    side by the condition, along an index.
    """
    table, alias, condition = found["table"], found["alias"], found["condition"].rstrip()
    rest = found["condition"][len(condition) :]
    looked_up = f"SELECT {alias}.* FROM {table} AS {alias} WHERE {condition} OFFSET 0"  # noqa: S608
    return f"CROSS JOIN LATERAL ({looked_up}) AS {alias}{rest}"
