"""Is a beat read as it is written, whether its list was read before or not?"""

from typing import Any

import pytest

from rota.core.shards.commands import BeatMember
from rota.errors import Invalid, RotaError
from rota.gateways.zeromq import decoder
from rota.gateways.zeromq.decoder import MessageDecoder, kind_of, read
from rota.messages.shards import HeartbeatMessage, heartbeat_command
from tests.gateways.zeromq.dealers import heartbeat, leave, register


def wholly(body: bytes) -> BeatMember:
    """The same, read in one piece."""
    message = read(body)
    assert isinstance(message, HeartbeatMessage)
    return heartbeat_command(message.data, tuple(message.data.assigned_shards))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"seq": 7, "generation": 3, "incarnation": 5, "protocol": 2, "draining": True},
        {"incarnation": "a", "unheard": {"of": [1]}},
    ],
)
def test_a_beat_says_the_same_the_first_time_and_ever_after(said: dict[str, Any]) -> None:
    reader = MessageDecoder()
    body = heartbeat("w", [0, 5, 6], **said)

    first, second = reader.decode(body), reader.decode(body)

    assert first == second == wholly(body)
    assert isinstance(first, BeatMember)
    assert isinstance(second, BeatMember)
    assert second.holds is first.holds


def test_a_list_is_the_same_for_whoever_writes_it() -> None:
    reader = MessageDecoder()

    one = reader.decode(heartbeat("w1", [1, 2], seq=1))
    other = reader.decode(heartbeat("w2", [1, 2], seq=2))

    assert isinstance(one, BeatMember)
    assert isinstance(other, BeatMember)
    assert one.holds == other.holds == (1, 2)
    assert (one.worker_id, other.worker_id) == ("w1", "w2")


def test_spaces_make_no_difference() -> None:
    reader = MessageDecoder()
    body = heartbeat("w", [1, 2]).replace(b"[1,2]", b"[ 1 ,\n2 ]")

    assert reader.decode(body) == wholly(body)


@pytest.mark.parametrize(
    "written", [b"[-1]", b'["1"]', b"[200000]", b"[1.5]", b"5", b"null", b"{}"]
)
def test_what_is_wrong_with_a_list_is_said_as_of_the_whole(written: bytes) -> None:
    body = heartbeat("w", []).replace(b"[]", written)

    for _ in range(2):
        with pytest.raises(Invalid, match=r"\$\.data\.assignedShards"):
            MessageDecoder().decode(body)


@pytest.mark.parametrize("written", [b"[1,]", b"[1", b"[1 2]", b"[01]", b"[--1]", b"[tru]"])
def test_a_list_that_is_no_json_is_refused(written: bytes) -> None:
    body = heartbeat("w", []).replace(b"[]", written)

    with pytest.raises(RotaError) as quick:
        MessageDecoder().decode(body)
    with pytest.raises(RotaError) as whole:
        read(body)
    assert (quick.value.code, quick.value.detail) == (whole.value.code, whole.value.detail)


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_CACHED_BYTES", 100)
    reader = MessageDecoder()

    for shard in range(1_000):
        event = reader.decode(heartbeat("w", [shard]))
        assert isinstance(event, BeatMember)
        assert event.holds == (shard,)

    assert sum(map(len, reader._shard_lists)) <= 100


def test_every_event_is_counted_under_the_name_of_its_message() -> None:
    reader = MessageDecoder()
    bodies = [heartbeat("w", []), register("w"), leave("w")]

    assert [kind_of(reader.decode(body)) for body in bodies] == ["heartbeat", "register", "leave"]
