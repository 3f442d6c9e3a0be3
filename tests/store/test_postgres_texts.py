"""How texts travel to PostgreSQL: those it cannot hold, those that are compared, and patterns."""

import re

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.addresses import without_password
from rota.store.postgres.dialect import translate
from rota.store.postgres.parameters import escaped, glob_to_regex, unescaped
from tests.databases.schemas import open_store, open_transaction, seen

SMALL = st.text(alphabet="\0\x01\x02ab", max_size=6)


@given(st.text())
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    kept = escaped(text)

    assert "\0" not in kept
    assert unescaped(kept) == text


@given(SMALL)
def test_the_smallest_signs_are_read_as_they_were_written(text: str) -> None:
    assert unescaped(escaped(text)) == text


@given(SMALL, SMALL)
def test_the_order_of_texts_stays_what_it_was(one: str, other: str) -> None:
    assert (escaped(one) < escaped(other)) == (one < other)
    assert escaped(one).startswith(escaped(other)) == one.startswith(other)


# --- patterns -----------------------------------------------------------------------------------

PATTERNS = st.text(alphabet="ab*?[]^-.\\$x\n", max_size=8)
KEYS = st.text(alphabet="abx.^-\\$]\n\x01", max_size=6)


@given(PATTERNS, KEYS)
def test_a_pattern_means_what_it_means_on_sqlite(pattern: str, key: str) -> None:
    connection = apsw.Connection(":memory:")
    ((expected,),) = connection.execute("SELECT ? GLOB ?", (key, pattern)).fetchall()
    connection.close()

    # Python's own understanding of these expressions is PostgreSQL's, but for the end of a line.
    found = re.fullmatch(glob_to_regex(pattern)[1:-1], escaped(key), re.DOTALL)
    assert bool(found) == bool(expected)


@pytest.mark.only("postgres")
@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("a*", "abc", True),
        ("a?c", "a\x01c", True),
        ("[^b]c", "\x01c", True),
        ("[a-c]x", "bx", True),
        ("[]]x", "]x", True),
        ("a.c", "abc", False),
        ("a\\d", "a1", False),
        ("*b", "a\nb", True),
        ("[a", "a", False),
        ("a$", "a", False),
    ],
)
def test_postgres_understands_the_patterns(
    tmp_path: object, pattern: str, key: str, *, matches: bool
) -> None:
    database = open_store(str(tmp_path))
    with open_transaction(database) as tx:
        text, kept = glob_to_regex(pattern), escaped(key)
        ((found,),) = seen(tx, f"SELECT $k${kept}$k$ ~ $p${text}$p$")
    database.close()

    assert found is matches


# --- queries and addresses ------------------------------------------------------------------------

LATERAL_TASK = "CROSS JOIN LATERAL (SELECT t.* FROM task AS t WHERE t.id = w.value OFFSET 0) AS t"
LATERAL_WORKER = (
    "CROSS JOIN LATERAL (SELECT w.* FROM w AS w WHERE w.id = wanted.value OFFSET 0) AS w"
)


@pytest.mark.parametrize(
    ("sqlite", "postgres"),
    [
        ("SELECT 1 WHERE a = :one AND b = :two", "SELECT 1 WHERE a = $1 AND b = $2"),
        ("SELECT 1 WHERE a = :one OR b < :one", "SELECT 1 WHERE a = $1 OR b < $1"),
        ("SELECT a FROM b WHERE c IN carray(:ids)", "SELECT a FROM b WHERE c = ANY($1::bigint[])"),
        (
            "FROM carray(:ids) AS w CROSS JOIN task AS t ON t.id = w.value WHERE t.a = :a",
            f"FROM unnest($1::bigint[]) AS w (value) {LATERAL_TASK} WHERE t.a = $2",
        ),
        (
            "FROM carray(:ids) AS wanted CROSS JOIN w AS w ON w.id = CAST(wanted.value AS TEXT)",
            f"FROM unnest($1::text[]) AS wanted (value) {LATERAL_WORKER}",
        ),
        ("SELECT a FROM b INDEXED BY c WHERE d = :d", "SELECT a FROM b WHERE d = $1"),
        ("SELECT :pattern::glob", "SELECT $1::text"),
    ],
)
def test_a_query_of_sqlites_reads_in_postgres(sqlite: str, postgres: str) -> None:
    assert translate(sqlite).text.decode() == postgres


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:///rota.db", "sqlite:///rota.db"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u:p@h/d", "postgresql://u:…@h/d"),
        ("postgresql://u:p@x@h/d", "postgresql://u:…@h/d"),
        ("postgresql://u:p/x@h/d", "postgresql://…"),
        ("postgresql://u:p#x@h/d", "postgresql://…"),
        ("postgresql://h/d?user=u&password=a%20b", "postgresql://h/d?user=u&password=…"),
        ("postgresql://u:p@[::1/d", "postgresql://…"),
    ],
)
def test_a_password_is_left_out_however_it_is_written(address: str, shown: str) -> None:
    assert without_password(address) == shown
