from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.kv import ExpiredEntry, KvEntry
from rota.core.quotas import Amount
from rota.store.kv import KeyRange, KvStore, keys_matching, keys_with_prefix
from rota.store.sqlite.database import SqliteDatabase
from tests.store.opened import NOW_MS, Opened, in_memory
from tests.store.test_plans import Steps

MUCH = 10**9


def entry(key: str = "k", **changes: Any) -> KvEntry:
    fields: dict[str, Any] = {"value": b"1", "version": 1, "updated_at_ms": NOW_MS}
    return KvEntry(key=key, **{**fields, **changes})


@pytest.fixture
def memories(store: Opened) -> KvStore:
    return KvStore(store.tx)


def keep(memories: KvStore, *keys: str) -> None:
    for key in keys:
        memories.put(entry(key))


def found(memories: KvStore, wanted: KeyRange, *, limit: int = 1_000) -> list[str]:
    """All keys that are meant, page by page."""
    keys: list[str] = []
    is_more = True
    while is_more:
        page, is_more = memories.page(
            wanted, after=keys[-1] if keys else "", now_ms=NOW_MS, limit=limit, most_bytes=MUCH
        )
        assert len(page) == limit or not is_more
        keys += [one.key for one in page]
    return keys


# --- one key ------------------------------------------------------------------------------------


@pytest.mark.parametrize("expires_at_ms", [None, NOW_MS - 1, NOW_MS + 1])
def test_a_value_comes_back_as_it_was_also_past_its_time(
    memories: KvStore, expires_at_ms: int | None
) -> None:
    kept = entry(value=b'{"a": [1, 2]}', version=2**50, expires_at_ms=expires_at_ms)

    memories.put(kept)

    assert memories.get("k") == kept
    assert memories.get("other") is None


def test_a_put_replaces_everything_but_the_key(memories: KvStore) -> None:
    memories.put(entry(expires_at_ms=NOW_MS))

    memories.put(entry(value=b"2", version=2, updated_at_ms=NOW_MS + 1))

    assert memories.get("k") == entry(value=b"2", version=2, updated_at_ms=NOW_MS + 1)


def test_what_is_dropped_is_gone(memories: KvStore) -> None:
    keep(memories, "a", "b", "c")

    memories.delete("a", "c", "never")

    assert found(memories, keys_with_prefix("")) == ["b"]


def test_what_is_past_its_time_is_found_oldest_first_and_no_more_than_asked(
    memories: KvStore,
) -> None:
    for age, key in enumerate("cab"):
        memories.put(entry(key, version=age, expires_at_ms=NOW_MS - age))
    memories.put(entry("later", expires_at_ms=NOW_MS + 1))
    memories.put(entry("never"))

    assert memories.expired(NOW_MS, 2) == [
        ExpiredEntry("b", 2, 1, None),
        ExpiredEntry("a", 1, 1, None),
    ]
    assert memories.expired(NOW_MS - 2, 9) == [ExpiredEntry("b", 2, 1, None)]


# --- which keys ---------------------------------------------------------------------------------

AWKWARD = [
    "a",
    "a%",
    "a%b",
    "a*",
    "a*b",
    "a/b",
    "a/b/c",
    "a?",
    "a[",
    "a[b]",
    "a]",
    "a_",
    "aXb",
    "ab",
    "é/1",
    "é/2",
    "日本/1",
    "a\U0010ffff",
    "a\U0010ffffb",
    "\U0010ffff\U0010ffff",
    "A/b",
    "a'; DROP TABLE memory; --",
    "a\\b",
    " a",
    "\n",
]


@pytest.mark.parametrize("prefix", ["", *AWKWARD, "a[b", "日", "zz", "\U0010ffff"])
def test_a_prefix_means_its_very_characters(memories: KvStore, prefix: str) -> None:
    keep(memories, *AWKWARD)

    assert found(memories, keys_with_prefix(prefix)) == sorted(
        key for key in AWKWARD if key.startswith(prefix)
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", AWKWARD),
        ("a", ["a"]),
        ("a/*", ["a/b", "a/b/c"]),
        ("a/?", ["a/b"]),
        ("a?b", ["a%b", "a*b", "a/b", "aXb", "a\\b", "a\U0010ffffb"]),
        ("a[*]b", ["a*b"]),
        ("a[[]*", ["a[", "a[b]"]),
        ("a[%_]", ["a%", "a_"]),
        ("a[^X]b", ["a%b", "a*b", "a/b", "a\\b", "a\U0010ffffb"]),
        ("a]", ["a]"]),
        ("a[", []),  # not closed: nothing can match
        ("a%", ["a%"]),
        ("a_", ["a_"]),
        ("*/1", ["é/1", "日本/1"]),
        ("é/[12]", ["é/1", "é/2"]),
        ("日?/*", ["日本/1"]),
        ("A*", ["A/b"]),
        ("?", ["a", "\n"]),
        ("*\U0010ffff", ["a\U0010ffff", "\U0010ffff\U0010ffff"]),
        ("/*", []),
    ],
)
def test_a_pattern_matches_whole_keys(memories: KvStore, pattern: str, expected: list[str]) -> None:
    keep(memories, *AWKWARD)

    assert found(memories, keys_matching(pattern)) == sorted(expected)


@given(
    st.lists(st.text("ab/%_[*?]é\U0010ffff", min_size=1, max_size=4), unique=True, max_size=20),
    st.text("ab/%_[*?]é\U0010ffff", max_size=3),
    st.integers(1, 7),
)
def test_any_prefix_finds_what_begins_with_it_in_pages_of_any_size(
    keys: list[str], prefix: str, limit: int
) -> None:
    with in_memory() as store:
        memories = KvStore(store.tx)
        keep(memories, *keys)

        assert found(memories, keys_with_prefix(prefix), limit=limit) == sorted(
            key for key in keys if key.startswith(prefix)
        )


def test_the_longest_key_of_the_last_characters_is_found(memories: KvStore) -> None:
    last = "\U0010ffff" * limits.MAX_KEY_LENGTH
    keep(memories, last)

    assert found(memories, keys_with_prefix("")) == [last]
    assert found(memories, keys_with_prefix(last)) == [last]


# --- pages --------------------------------------------------------------------------------------


def test_what_is_past_its_time_is_on_no_page(memories: KvStore) -> None:
    memories.put(entry("a", expires_at_ms=NOW_MS))
    memories.put(entry("b", expires_at_ms=NOW_MS + 1))
    memories.put(entry("c"))

    assert found(memories, keys_with_prefix("")) == ["b", "c"]
    assert found(memories, keys_matching("?")) == ["b", "c"]


def test_a_page_has_its_values_in_the_order_of_keys(memories: KvStore) -> None:
    kept = [
        entry(key, value=str(version).encode(), version=version)
        for version, key in enumerate(["b", "c", "a"], start=1)
    ]
    for one in kept:
        memories.put(one)

    page, is_more = memories.page(
        keys_with_prefix(""), after="", now_ms=NOW_MS, limit=2, most_bytes=MUCH
    )

    assert page == [kept[2], kept[0]]
    assert is_more


def test_of_large_values_a_page_has_fewer_but_at_least_one(memories: KvStore) -> None:
    for key in "abc":
        memories.put(entry(key, value=b"x" * 60))

    def page(after: str, most_bytes: int) -> tuple[str, bool]:
        entries, is_more = memories.page(
            keys_with_prefix(""), after=after, now_ms=NOW_MS, limit=9, most_bytes=most_bytes
        )
        return "".join(one.key for one in entries), is_more

    assert page("", 180) == ("abc", False)
    assert page("", 179) == ("ab", True)
    assert page("", 1) == ("a", True)
    assert page("a", 1) == ("b", True)
    assert page("b", 1) == ("c", False)


def test_a_page_begins_after_a_key_that_is_gone_since(memories: KvStore) -> None:
    keep(memories, "a", "c")

    page, _ = memories.page(
        keys_with_prefix(""), after="b", now_ms=NOW_MS, limit=9, most_bytes=MUCH
    )

    assert [one.key for one in page] == ["c"]


@pytest.mark.only("sqlite")  # whose steps are counted
def test_a_page_costs_the_same_however_many_other_keys_there_are(
    store: Opened, database: SqliteDatabase, memories: KvStore
) -> None:
    keep(memories, "m/1", "m/2")
    costs = []
    for first in (0, 2_000):
        for number in range(first, first + 2_000):
            keep(memories, f"a/{number}", f"z/{number}")
        found(memories, keys_with_prefix("m/"))
        with Steps(database) as steps:
            found(memories, keys_with_prefix("m/"))
            found(memories, keys_matching("m/*"))
        costs.append(steps.count)

    assert costs[1] <= 1.1 * costs[0]


def test_values_count_for_their_owners(memories: KvStore) -> None:
    memories.put(entry("a", value=b"12", owner="t1"))
    memories.put(entry("b", value="ä".encode(), owner="t1"))
    memories.put(entry("c", value=b"1", owner="t2"))
    memories.put(entry("d", value=b"123"))

    memories.put(entry("c", value=b"12345", owner="t3"))

    usage = memories.usage(NOW_MS)
    assert (usage.total, usage.read_at_ms) == (Amount(4, 12), NOW_MS)
    assert usage.owners == {"t1": Amount(2, 4), "t3": Amount(1, 5)}
