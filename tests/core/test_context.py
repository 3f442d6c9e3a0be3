"""Every domain of the core is a reducer. mypy checks the assignments below, the test runs them."""

import inspect
from typing import Any

import pytest
from msgspec import Raw

from rota.core import kv, locks, reducer
from rota.core.commands import SubmitTasks, TaskCommand
from rota.core.context import Reducer
from rota.core.decisions import Decision
from rota.core.kv import KvCommand, KvDecision, KvReply, KvState, PutValue
from rota.core.locks import AcquireLock, ChangeLock, LockAnswer, LockCommand, LockState, LockTable
from rota.core.quotas import Usage
from rota.core.replies import Done, Reply
from rota.core.shards import reducer as shard_reducer
from rota.core.shards.commands import RegisterMember, ServiceCommand, SweepServices
from rota.core.shards.decisions import ShardDecision
from rota.core.shards.members import Assignment
from rota.core.shards.service import Service
from rota.core.snapshot import Snapshot
from tests.core.snapshots import NOW_MS, context_at, new_task

TASKS: Reducer[Snapshot, TaskCommand, Decision, Reply] = reducer.reduce
VALUES: Reducer[KvState, KvCommand, KvDecision, KvReply] = kv.reduce
LOCKS: Reducer[LockTable, LockCommand, ChangeLock, LockAnswer | Done] = locks.reduce
SHARDS: Reducer[Service, ServiceCommand | SweepServices, ShardDecision, Assignment | None] = (
    shard_reducer.reduce
)

DOMAINS = {
    "tasks": (TASKS, Snapshot(), SubmitTasks([new_task()])),
    "values": (
        VALUES,
        KvState({"k": None}, [], last_version=0, usage=Usage()),
        PutValue(key="k", value=Raw(b"1")),
    ),
    "locks": (
        LOCKS,
        LockTable({"l": LockState(name="l")}, [], locks.Numbers(0)),
        AcquireLock(name="l", owner="o", ttl_ms=1_000),
    ),
    "shards": (
        SHARDS,
        Service("feed"),
        RegisterMember(service="feed", worker_id="w", shard_count=2),
    ),
}


@pytest.mark.parametrize(("reduce", "state", "command"), DOMAINS.values(), ids=DOMAINS.keys())
def test_a_domain_reduces_a_command_to_its_decisions_and_its_reply(
    reduce: Reducer[Any, Any, Any, Any], state: Any, command: Any
) -> None:
    decisions, reply = reduce(state, command, context_at(NOW_MS))

    assert decisions
    assert isinstance(decisions, list)
    assert reply is not None
    _, *parameters = inspect.signature(reduce).parameters
    assert parameters == ["command", "context"]
