"""The header with the spans of joined tasks: its text, and its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.tasks.headers import check_headers
from rota.core.tasks.trace_links import LINKS, decode_links, encode_links, with_links


def traceparent(trace: int, span: int, flags: int = 1) -> str:
    return f"00-{trace:032x}-{span:016x}-{flags:02x}"


def as_link(text: str) -> tuple[str, str, str]:
    _, trace, span, flags = text.split("-")
    return trace, span, flags


SPANS = st.builds(
    traceparent, st.integers(1, 4), st.integers(1, 40), st.sampled_from([0, 1])
) | st.builds(traceparent, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))


@given(st.lists(SPANS, max_size=60))
def test_links_are_read_as_they_were_written_within_the_limits(spans: list[str]) -> None:
    text = encode_links(spans)
    links = decode_links(text)

    assert len(text) <= limits.MAX_HEADER_LENGTH
    assert len(links) == len(set(links)) <= limits.MAX_TRACE_LINKS
    assert set(links) <= {as_link(one) for one in spans}
    assert not spans or as_link(spans[0]) in links


def test_as_many_spans_of_one_trace_fit_as_a_task_may_link_to() -> None:
    spans = [traceparent(7, number) for number in range(1, 100)]

    assert len(decode_links(encode_links(spans))) == limits.MAX_TRACE_LINKS


def test_a_header_that_is_no_list_of_links_has_none() -> None:
    good = encode_links([traceparent(1, 2)])

    assert decode_links("") == []
    assert decode_links("xyz") == []
    assert decode_links(f"{good},{good[:-1]}") == [as_link(traceparent(1, 2))]


def test_links_are_left_out_where_the_headers_of_the_run_leave_no_room() -> None:
    full = {f"h{number}": "v" for number in range(limits.MAX_HEADERS)}
    linked = with_links({"tenant": "acme"}, [traceparent(1, 2)])

    assert with_links(full, [traceparent(1, 2)]) == full
    assert linked is not None
    assert list(linked) == ["tenant", LINKS]
    check_headers(linked)
    assert with_links(None, []) is None
