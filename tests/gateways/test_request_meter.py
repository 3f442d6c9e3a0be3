"""The limits of a connection, without one."""

import pytest

from rota.errors import HeadTooLarge
from rota.gateways.http.server.connection_limits import (
    ConnectionLimits,
    Deadlines,
    RequestMeter,
    Stage,
)

LIMITS = ConnectionLimits(head_bytes=100, trailer_bytes=50, head_s=1, body_s=10, idle_s=60)
FIELD = (b"name", b"x" * 42)  # 50 bytes on the wire


@pytest.fixture
def meter() -> RequestMeter:
    return RequestMeter(LIMITS)


def test_a_head_in_a_small_read_is_not_measured(meter: RequestMeter) -> None:
    meter.start_read(100)
    meter.begin_head()
    meter.complete_head(b"", [FIELD] * 100)  # more than the read had: it is not looked at
    meter.complete_message()
    meter.end_read()

    assert meter.stage is Stage.BETWEEN


def test_a_large_read_is_measured_by_what_is_of_the_head(meter: RequestMeter) -> None:
    meter.start_read(1_000)
    meter.begin_head()
    meter.complete_head(b"", [FIELD] * 2)

    meter.begin_head()
    with pytest.raises(HeadTooLarge):
        meter.complete_head(b"/", [FIELD] * 2)


def test_a_head_that_goes_on_is_refused_when_it_is_over_the_limit(meter: RequestMeter) -> None:
    meter.start_read(40)
    meter.begin_head()
    meter.end_read()
    for _ in range(2):
        meter.start_read(50)
        meter.end_read()

    meter.start_read(1)
    with pytest.raises(HeadTooLarge):
        meter.end_read()


def test_what_was_read_before_a_head_is_not_of_the_head(meter: RequestMeter) -> None:
    meter.start_read(1_000)
    meter.begin_head()
    meter.end_read()
    meter.start_read(1_000)
    meter.complete_head(b"", [])
    meter.take_body(500)
    meter.complete_message()
    meter.begin_head()
    meter.end_read()

    assert meter.stage is Stage.HEAD


def test_data_of_a_body_is_not_counted_and_the_rest_is(meter: RequestMeter) -> None:
    meter.start_read(100)
    meter.begin_head()
    meter.complete_head(b"", [])
    meter.end_read()
    for _ in range(100):
        meter.start_read(1_000)
        meter.take_body(1_000)
        meter.end_read()
    meter.start_read(50)
    meter.end_read()

    meter.start_read(1)
    with pytest.raises(HeadTooLarge):
        meter.end_read()


def test_a_chunk_may_have_a_size_and_line_ends(meter: RequestMeter) -> None:
    meter.start_read(100)
    meter.begin_head()
    meter.complete_head(b"", [])
    meter.end_read()
    for _ in range(1_000):
        meter.start_read(6)
        meter.take_chunk()
        meter.take_body(1)
        meter.end_read()

    # What so many chunks did not take is no credit for what follows them.
    meter.start_read(51)
    with pytest.raises(HeadTooLarge):
        meter.end_read()


def test_a_connection_is_waited_for_from_the_moment_that_counts() -> None:
    deadlines = Deadlines(LIMITS)
    deadlines.connected_at_s = 100
    fresh = deadlines.due_at_s(Stage.BETWEEN)
    deadlines.head_began_at_s = 100.5
    head = deadlines.due_at_s(Stage.HEAD)
    deadlines.head_began_at_s = None
    deadlines.answered_at_s = 200
    idle = deadlines.due_at_s(Stage.BETWEEN)
    rest = deadlines.due_at_s(Stage.BODY)

    assert (fresh, head, idle, rest) == (101, 101.5, 260, 210)
