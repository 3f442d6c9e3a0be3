"""Are connections counted as they come and go, and complaints made once in a while?"""

from hypothesis import given
from hypothesis import strategies as st
from structlog import get_logger
from structlog.testing import capture_logs

from rota.engine.metrics.metrics import WireMetrics
from rota.gateways.throttled_log import LOG_EVERY_S, ThrottledLog
from rota.gateways.zeromq.address_book import AddressBook
from rota.gateways.zeromq.connections import TIMER_LAG_S, ConnectionTracker

HANDSHAKE_S = 5.0
YOUNG_S = HANDSHAKE_S + TIMER_LAG_S


def test_connections_that_say_nothing_take_nobodys_place() -> None:
    tracker = ConnectionTracker(handshake_s=HANDSHAKE_S)

    for descriptor in range(10):
        tracker.opened(descriptor, now_s=0.0)
    tracker.admit(now_s=0.0)

    assert len(tracker) == 10
    assert tracker.admitted_count(now_s=1.0) == 1


def test_a_place_is_free_again_when_its_connection_has_gone() -> None:
    tracker = ConnectionTracker(handshake_s=HANDSHAKE_S)
    tracker.opened(7, now_s=0.0)
    tracker.admit(now_s=0.0)
    assert tracker.admitted_count(now_s=2 * YOUNG_S) == 1

    tracker.closed(7)

    assert (len(tracker), tracker.admitted_count(now_s=2 * YOUNG_S)) == (0, 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["opened", "admit", "closed"]), st.integers(0, 5), st.integers(0, 4)),
    max_size=60,
)


@given(steps=STEPS)
def test_no_more_are_let_in_than_are_counted(steps: list[tuple[str, int, int]]) -> None:
    """However they come and go: a peer that is not welcomed in time is gone."""
    tracker = ConnectionTracker(handshake_s=HANDSHAKE_S)
    now_s = 0.0
    came: dict[int, float] = {}
    welcomed: set[int] = set()
    for step, descriptor, pause_s in steps:
        now_s += pause_s
        for mute in [one for one, at_s in came.items() if at_s + HANDSHAKE_S < now_s]:
            if mute not in welcomed:
                tracker.closed(mute)
                del came[mute]
        if step == "opened" and descriptor not in came:
            came[descriptor] = now_s
            tracker.opened(descriptor, now_s)
        elif step == "admit" and descriptor in came and descriptor not in welcomed:
            welcomed.add(descriptor)
            tracker.admit(now_s)
        elif step == "closed" and descriptor in came:
            del came[descriptor]
            welcomed.discard(descriptor)
            tracker.closed(descriptor)

        assert len(tracker) == len(came)
        assert tracker.admitted_count(now_s) >= len(welcomed)


def test_the_same_complaint_is_made_once_in_a_while() -> None:
    now_s = 0.0
    throttled_log = ThrottledLog(get_logger(), lambda: now_s)

    with capture_logs() as logged:
        for _ in range(5):
            throttled_log.warn("refused", code="invalid")
        throttled_log.warn("refused", code="malformed")
        now_s += LOG_EVERY_S
        throttled_log.warn("refused", code="invalid")

    assert [(one["code"], one["suppressed"]) for one in logged] == [
        ("invalid", 0),
        ("malformed", 0),
        ("invalid", 4),
    ]


def test_a_member_is_forgotten_only_where_it_was() -> None:
    peers = AddressBook(WireMetrics())
    peers.note_address(("s", "w"), b"old")
    peers.note_address(("s", "w"), b"new")

    peers.forget_member(("s", "w"), b"old")
    assert peers.address(("s", "w")) == b"new"

    peers.forget_member(("s", "w"), b"new")
    assert peers.address(("s", "w")) is None
