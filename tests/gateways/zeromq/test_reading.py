"""Is a beat read as it is written, whether its list was read before or not?"""

from typing import Any

import pytest

from rota.core.shards.events import BeatMember
from rota.errors import Invalid, RotaError
from rota.gateways.zeromq import reading
from rota.gateways.zeromq.reading import Reader, kind_of, read
from rota.messages.shards import Heartbeat, beat_event
from tests.gateways.zeromq.dealers import heartbeat, leave, register


def wholly(body: bytes) -> BeatMember:
    """The same, read in one piece."""
    message = read(body)
    assert isinstance(message, Heartbeat)
    return beat_event(message.data, tuple(message.data.assigned_shards))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"seq": 7, "generation": 3, "incarnation": 5, "protocol": 2, "draining": True},
        {"incarnation": "a", "unheard": {"of": [1]}},
    ],
)
def test_a_beat_says_the_same_the_first_time_and_ever_after(said: dict[str, Any]) -> None:
    reader = Reader()
    body = heartbeat("w", [0, 5, 6], **said)

    first, second = reader.event_of(body), reader.event_of(body)

    assert first == second == wholly(body)
    assert isinstance(first, BeatMember)
    assert isinstance(second, BeatMember)
    assert second.holds is first.holds


def test_a_list_is_the_same_for_whoever_writes_it() -> None:
    reader = Reader()

    one = reader.event_of(heartbeat("w1", [1, 2], seq=1))
    other = reader.event_of(heartbeat("w2", [1, 2], seq=2))

    assert isinstance(one, BeatMember)
    assert isinstance(other, BeatMember)
    assert one.holds == other.holds == (1, 2)
    assert (one.worker_id, other.worker_id) == ("w1", "w2")


def test_spaces_make_no_difference() -> None:
    reader = Reader()
    body = heartbeat("w", [1, 2]).replace(b"[1,2]", b"[ 1 ,\n2 ]")

    assert reader.event_of(body) == wholly(body)


@pytest.mark.parametrize(
    "written", [b"[-1]", b'["1"]', b"[200000]", b"[1.5]", b"5", b"null", b"{}"]
)
def test_what_is_wrong_with_a_list_is_said_as_of_the_whole(written: bytes) -> None:
    body = heartbeat("w", []).replace(b"[]", written)

    for _ in range(2):
        with pytest.raises(Invalid, match=r"\$\.data\.assignedShards"):
            Reader().event_of(body)


@pytest.mark.parametrize("written", [b"[1,]", b"[1", b"[1 2]", b"[01]", b"[--1]", b"[tru]"])
def test_a_list_that_is_no_json_is_refused(written: bytes) -> None:
    body = heartbeat("w", []).replace(b"[]", written)

    with pytest.raises(RotaError) as quick:
        Reader().event_of(body)
    with pytest.raises(RotaError) as whole:
        read(body)
    assert (quick.value.code, quick.value.detail) == (whole.value.code, whole.value.detail)


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_REMEMBERED_BYTES", 100)
    reader = Reader()

    for shard in range(1_000):
        event = reader.event_of(heartbeat("w", [shard]))
        assert isinstance(event, BeatMember)
        assert event.holds == (shard,)

    assert sum(map(len, reader._lists)) <= 100


def test_every_event_is_counted_under_the_name_of_its_message() -> None:
    reader = Reader()
    bodies = [heartbeat("w", []), register("w"), leave("w")]

    assert [kind_of(reader.event_of(body)) for body in bodies] == ["heartbeat", "register", "leave"]
