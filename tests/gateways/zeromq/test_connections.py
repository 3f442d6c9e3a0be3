"""Are connections counted as they come and go, and complaints made once in a while?"""

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rota.engine.figures import WireFigures
from rota.gateways.zeromq.complaints import COMPLAIN_EVERY_S, Complaints
from rota.gateways.zeromq.connections import LATE_S, Roll
from rota.gateways.zeromq.peers import Peers

HANDSHAKE_S = 5.0
YOUNG_S = HANDSHAKE_S + LATE_S


def test_connections_that_say_nothing_take_nobodys_place() -> None:
    roll = Roll(handshake_s=HANDSHAKE_S)

    for descriptor in range(10):
        roll.come(descriptor, now_s=0.0)
    roll.welcome(now_s=0.0)

    assert len(roll) == 10
    assert roll.welcome_ones(now_s=1.0) == 1


def test_a_place_is_free_again_when_its_connection_has_gone() -> None:
    roll = Roll(handshake_s=HANDSHAKE_S)
    roll.come(7, now_s=0.0)
    roll.welcome(now_s=0.0)
    assert roll.welcome_ones(now_s=2 * YOUNG_S) == 1

    roll.go(7)

    assert (len(roll), roll.welcome_ones(now_s=2 * YOUNG_S)) == (0, 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "welcome", "go"]), st.integers(0, 5), st.integers(0, 4)),
    max_size=60,
)


@given(steps=STEPS)
def test_no_more_are_let_in_than_are_counted(steps: list[tuple[str, int, int]]) -> None:
    """However they come and go: whoever is not welcomed in time is gone."""
    roll = Roll(handshake_s=HANDSHAKE_S)
    now_s = 0.0
    came: dict[int, float] = {}
    welcomed: set[int] = set()
    for step, descriptor, pause_s in steps:
        now_s += pause_s
        for mute in [one for one, at_s in came.items() if at_s + HANDSHAKE_S < now_s]:
            if mute not in welcomed:
                roll.go(mute)
                del came[mute]
        if step == "come" and descriptor not in came:
            came[descriptor] = now_s
            roll.come(descriptor, now_s)
        elif step == "welcome" and descriptor in came and descriptor not in welcomed:
            welcomed.add(descriptor)
            roll.welcome(now_s)
        elif step == "go" and descriptor in came:
            del came[descriptor]
            welcomed.discard(descriptor)
            roll.go(descriptor)

        assert len(roll) == len(came)
        assert roll.welcome_ones(now_s) >= len(welcomed)


def test_the_same_complaint_is_made_once_in_a_while() -> None:
    now_s = 0.0
    complaints = Complaints(lambda: now_s)

    with capture_logs() as logged:
        for _ in range(5):
            complaints.about("refused", code="invalid")
        complaints.about("refused", code="malformed")
        now_s += COMPLAIN_EVERY_S
        complaints.about("refused", code="invalid")

    assert [(one["code"], one["unsaid"]) for one in logged] == [
        ("invalid", 0),
        ("malformed", 0),
        ("invalid", 4),
    ]


def test_a_member_is_forgotten_only_where_it_was() -> None:
    peers = Peers(WireFigures())
    peers.note_address(("s", "w"), b"old")
    peers.note_address(("s", "w"), b"new")

    peers.forget_member(("s", "w"), b"old")
    assert peers.address(("s", "w")) == b"new"

    peers.forget_member(("s", "w"), b"new")
    assert peers.address(("s", "w")) is None
