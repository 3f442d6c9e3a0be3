"""The account of a connection follows the messages in its stream, however it is measured."""

from hypothesis import given
from hypothesis import strategies as st

from rota.gateways.zeromq.peer_account import SETTLED_S, PeerAccount, wire_bytes

LATER_S = 2 * SETTLED_S


class Stream:
    """A connection whose every byte is known, beside the account of it."""

    def __init__(self) -> None:
        self.account = PeerAccount(now_s=0.0)
        self.now_s = 0.0
        self.caught_up_s = 0.0
        self.received = 0
        self.begun = 0  # of the message that is not whole
        self.waiting: list[int] = []
        self.commands = 0  # bytes that are part of no message

    def begin(self, length: int) -> None:
        self.received += length
        self.begun += length

    def end(self, length: int) -> None:
        self.begin(length)
        self.waiting.append(self.begun)
        self.begun = 0

    def ping(self, length: int) -> None:
        self.received += length
        self.commands += length

    def read(self, count: int) -> None:
        for length in self.waiting[:count]:
            assert self.account.deliver(b"\0\0\0\0\1", length)
        del self.waiting[:count]

    def rest(self, _: int) -> None:
        """Nothing comes for a while, and everything is read."""
        self.read(len(self.waiting))
        self.measure(0)
        self.now_s += LATER_S
        self.measure(0)

    def measure(self, _: int) -> None:
        self.account.measure(self.received, self.now_s, self.caught_up_s)
        if not self.waiting:
            self.caught_up_s = self.now_s

    @property
    def outstanding(self) -> int:
        return self.begun + sum(self.waiting)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "ping", "read", "rest", "measure"]), st.integers(1, 5_000)
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_no_unfinished_byte_is_forgiven_and_no_byte_of_a_delivered_message_is_counted(
    steps: list[tuple[str, int]],
) -> None:
    stream = Stream()
    for step, value in steps:
        getattr(stream, step)(value)
        stream.measure(0)

        unfinished = stream.account.unfinished_bytes
        assert stream.outstanding <= unfinished <= stream.outstanding + stream.commands


@given(pings=st.lists(st.integers(9, 60), min_size=1), length=st.integers(2, 3_000))
def test_pings_do_not_add_up_beyond_one_message(pings: list[int], length: int) -> None:
    stream = Stream()
    for ping in pings:
        stream.ping(ping)
        stream.rest(0)
        stream.end(length)
        stream.rest(0)

        assert stream.account.unfinished_bytes <= max(length, pings[0])


def test_a_million_messages_leave_nothing_on_the_account() -> None:
    stream = Stream()
    for number in range(1_000_000):
        stream.received += 100
        stream.account.deliver(b"\0\0\0\0\1", 100)
        if number % 1_000 == 0:
            stream.measure(0)
    stream.measure(0)

    assert stream.account.unfinished_bytes == 0


def test_messages_of_the_connection_that_had_the_descriptor_before_are_not_credited() -> None:
    for older, newer in [(b"\0\0\0\0\7", b"\0\0\0\0\x08"), (b"\0\xff\xff\xff\xff", bytes(5))]:
        account = PeerAccount(now_s=0.0)

        assert account.deliver(older, 100)  # that it is older shows only later
        assert account.deliver(newer, 10)
        assert not account.deliver(older, 100)
        assert account.deliver(newer, 10)


def test_a_routing_id_of_a_peers_choice_is_neither_older_nor_newer() -> None:
    account = PeerAccount(now_s=0.0)

    assert all(account.deliver(routing_id, 1) for routing_id in [b"b", b"a", b"\0\0\0\0\1", b"b"])


def test_without_a_count_of_received_bytes_messages_are_seen_and_nothing_is_unfinished() -> None:
    account = PeerAccount(now_s=0.0)
    account.deliver(b"\0\0\0\0\1", 100)

    account.measure(None, 5.0, 0.0)

    assert (account.unfinished_bytes, account.whole_at_s) == (0, 5.0)


def test_a_frame_is_as_long_on_the_wire_as_the_protocol_makes_it() -> None:
    plain = [wire_bytes(length, is_encrypted=False) for length in (0, 255, 256)]
    encrypted = [wire_bytes(length, is_encrypted=True) for length in (0, 222, 223)]

    assert plain == [2, 257, 265]
    assert encrypted == [35, 257, 265]
