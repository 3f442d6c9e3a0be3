import pytest

from rota.core.tasks.error_fingerprints import cause, fingerprint, gist


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 7: '3abc' is no number", "row 912: 'x' is no number"),
        ("10.0.0.1:5432 refused", "10.0.0.27:5433 refused"),
        ("no user 343c605113c0000b", "no user 9f8e7d6c5b4a3210"),
        ("cannot open /var/data/a.csv", "cannot open /tmp/b/c.csv"),
        ("<Job at 0x7f3a> died after 1.5 s", "<Job at 0x1b> died after 20.25 s"),
        ('key "a" is missing', 'key "another one" is missing'),
    ],
)
def test_errors_that_differ_in_particulars_only_are_one(one: str, other: str) -> None:
    assert gist(one) == gist(other)
    assert cause("E", one) == cause("E", other)


def test_other_words_types_and_tasks_are_other_failures() -> None:
    base = cause("ValueError", "no route")

    assert cause("ValueError", "no way") != base
    assert cause("OSError", "no route") != base
    assert cause("", "") != base
    assert fingerprint("work", base) != fingerprint("play", base)
    assert fingerprint("work", base) == fingerprint("work", cause("ValueError", "no route"))


def test_a_message_of_any_length_is_summed_up_at_once() -> None:
    assert len(gist("a'" * 1_000_000)) <= 300
