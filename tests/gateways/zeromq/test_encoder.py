"""Is what members are told written the same, whether it was written before or not?"""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rota.core.shards.members import Assignment
from rota.gateways.zeromq import encoder
from rota.gateways.zeromq.encoder import AssignmentEncoder
from rota.messages.shards import AssignmentMessage, assignment_data

SHARDS, EPOCHS = (1, 2, 30), (4, 5, 6)


def assignment(worker_id: str = "w", **changes: Any) -> Assignment:
    fields: dict[str, Any] = {
        "service": "s",
        "worker_id": worker_id,
        "incarnation": "1",
        "protocol": 2,
        "shards": SHARDS,
        "epochs": EPOCHS,
        "generation": 7,
        "lease_ms": 15_000,
        "heartbeat_interval_ms": 5_000,
    }
    return Assignment(**{**fields, **changes})


def wholly(told: Assignment) -> bytes:
    return msgspec.json.encode(AssignmentMessage(assignment_data(told)))


def test_only_the_number_is_put_in_anew() -> None:
    words, told = AssignmentEncoder(), assignment()

    for seq in (None, 0, 1, 2**53, None):
        answer = replace(told, seq=seq)
        assert words.encode(answer) == wholly(answer)


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": (1, 2), "epochs": (4, 5)},
        {"epochs": (4, 5, 7)},
        {"revoking": (9,)},
        {"generation": 8},
        {"status": "fenced", "reason": 'somebody said "seq":null'},
        {"lease_ms": 10},
        {"heartbeat_interval_ms": 10},
        {"protocol": 1},
    ],
    ids=",".join,
)
def test_whatever_has_changed_is_told(changes: dict[str, Any]) -> None:
    words, before = AssignmentEncoder(), assignment(seq=1)
    after = replace(before, seq=2, **changes)
    words.encode(before)

    assert words.encode(after) == wholly(after)
    assert words.encode(before) == wholly(before)


def test_old_clients_are_told_nothing_of_numbers() -> None:
    words, told = AssignmentEncoder(), assignment(protocol=1, seq=5)

    assert words.encode(told) == words.encode(told) == wholly(told)


def test_everybody_is_told_their_own() -> None:
    words = AssignmentEncoder()
    several = [assignment("a"), assignment("b", shards=(7,)), assignment("a", service="t")]

    for told in several * 2:
        assert words.encode(told) == wholly(told)


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "MAX_CACHED_BYTES", 10 * len(wholly(assignment())))
    words = AssignmentEncoder()

    for number in range(100):
        told = assignment(f"w{number}", generation=number % 3)
        assert words.encode(told) == wholly(told)

    assert len(words) <= 10
