"""How does a query that was written for SQLite read in PostgreSQL?

Most of them read the same. What differs in form only is put right here: placeholders, sets of
values, and the words by which SQLite is told the order of a join. What differs in substance has an
override in `sql/postgres/`.
"""

import re
from typing import NamedTuple

_TEXTS = "CAST(wanted.value AS TEXT)"
_IN_TEXTS = "IN (SELECT CAST(value AS TEXT) FROM carray(?))"
_CAST = re.compile(r"\?(?:::(\w+(?:\[\])?))?")
_CHANGES = re.compile(r"\s*(?:--[^\n]*\n\s*)*(SELECT|WITH)\b")


_CROSS_JOIN = re.compile(
    r"CROSS JOIN (?P<table>\w+) AS (?P<alias>\w+)\s+ON\s+(?P<condition>.+?)"
    r"(?=\s+(?:CROSS JOIN|LEFT JOIN|WHERE|GROUP BY|ORDER BY|LIMIT|ON CONFLICT)\b|\Z)",
    re.DOTALL,
)


class Query(NamedTuple):
    text: bytes
    types: tuple[str | None, ...]  # of the parameters, where the query names them
    is_change: bool


def translated(text: str) -> Query:
    types: list[str | None] = []

    def numbered(found: re.Match[str]) -> str:
        kind = found[1]
        types.append(kind)
        place = f"${len(types)}"
        # A pattern is turned into a regular expression on its way: see `parameters.py`.
        return f"{place}::text" if kind == "glob" else place + (f"::{kind}" if kind else "")

    bare = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    numbered_text = _CAST.sub(numbered, _reworded(bare))
    return Query(numbered_text.encode(), tuple(types), not _CHANGES.match(bare))


def _reworded(text: str) -> str:
    kind = "text" if _TEXTS in text else "bigint"
    text = text.replace(_TEXTS, "wanted.value").replace(_IN_TEXTS, "= ANY(?::text[])")
    text = text.replace("IN carray(?)", "= ANY(?::bigint[])")
    text = re.sub(r"carray\(\?\) AS (\w+)", rf"unnest(?::{kind}[]) AS \1 (value)", text)
    text = re.sub(r" INDEXED BY \w+", "", text)
    return _CROSS_JOIN.sub(_in_order, text)


def _in_order(found: re.Match[str]) -> str:
    """A join whose order is the one that is written, whatever the planner thinks of it.

    It may not look into a subquery that has an offset, and so looks up each row of the left side
    by the condition, over an index.
    """
    table, alias, condition = found["table"], found["alias"], found["condition"].rstrip()
    rest = found["condition"][len(condition) :]
    looked_up = f"SELECT {alias}.* FROM {table} AS {alias} WHERE {condition} OFFSET 0"  # noqa: S608
    return f"CROSS JOIN LATERAL ({looked_up}) AS {alias}{rest}"
