"""Executes a batch inside its transaction: load, reduce, write, domain by domain.

`DOMAINS` has the order of the domains, with its reasons.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from rota.core.commands import Command
from rota.core.decisions import (
    AddTask,
    Decision,
    LeaseTask,
    NoteWatch,
    ReplaceTask,
    RequeueTask,
    TellCancelled,
)
from rota.engine.commit.batch import Batch, Domain
from rota.engine.commit.request import earlier
from rota.engine.commit.state import WriterState, paused_after
from rota.engine.commit.task_domain import TaskDomain
from rota.engine.dispatch.dispatch_domain import DispatchDomain
from rota.engine.events.recorder import HistoryDomain
from rota.engine.flows.flow_domain import FlowDomain
from rota.engine.kv.domains import KvDomain, LockDomain
from rota.engine.outbound.domains import PushDomain, WebhookDomain
from rota.engine.replicas.domain import ReplicaDomain
from rota.engine.runs.run_domain import RunDomain
from rota.engine.schedules.schedule_domain import ScheduleDomain
from rota.engine.sessions import SessionDomain
from rota.engine.shards.shard_domain import ShardDomain
from rota.errors import RotaError

DOMAINS: tuple[type[Domain], ...] = (
    ShardDomain,  # first, so that results of tasks are checked against the newest epochs
    TaskDomain,  # tasks and workers
    RunDomain,  # continues after the tasks that ended, and adds and cancels tasks
    ScheduleDomain,  # after both, because it submits tasks and starts runs by their rules
    KvDomain,  # independent of the others
    LockDomain,  # independent of the others
    WebhookDomain,  # independent of the others
    PushDomain,  # independent of the others
    DispatchDomain,  # assigns the tasks that are queued by then
    FlowDomain,  # writes the limits that started and ended tasks have changed
    ReplicaDomain,  # independent of the others
    SessionDomain,  # is notified of all ended tasks, and knows which tasks are still queued
    HistoryDomain,  # last, because it records the decisions of all others
)

STEPS = ("load", "react", "close")  # of a domain, beside its commands and its writes


def execute(batch: Batch) -> WriterState:
    """Execute a batch inside its transaction; return the writer's state after it."""
    domains: list[Domain] = []
    for kind, is_certain, has_commands, has_steps in possible_domains(batch.kinds):
        if is_certain or kind.is_concerned(batch):
            domain = kind(batch)
            domains.append(domain)
            if has_commands:
                _reduce_all(domain, batch)
            elif has_steps:
                domain.load(())
                domain.react()
                domain.close()
    for domain in domains:
        domain.write()
    decisions, delivery = batch.decisions, batch.delivery
    delivery.next_moment_ms = earlier(delivery.next_moment_ms, next_due_ms(decisions))
    if TellCancelled in decisions:
        delivery.cancelled = decisions[TellCancelled]
    return state_after(batch)


class PossibleDomain(NamedTuple):
    """What the kinds of a batch's commands say about one domain."""

    domain: type[Domain]
    is_certain: bool  # the batch needs it; otherwise it is asked whether it is concerned
    has_commands: bool  # some of the commands are its own
    has_steps: bool  # it does something before it writes, also without commands


@lru_cache(maxsize=1_024)
def possible_domains(kinds: frozenset[type[Any]]) -> tuple[PossibleDomain, ...]:
    """Return the domains that commands of these kinds may need.

    Most domains go by the kinds alone, and most batches have the same few.
    """
    return tuple(
        PossibleDomain(
            domain,
            domain.is_named_by(kinds),
            not domain.COMMANDS.isdisjoint(kinds),
            any(getattr(domain, step) is not getattr(Domain, step) for step in STEPS),
        )
        for domain in DOMAINS
        if domain.is_named_by(kinds) or domain.looks_further(kinds)
    )


def _reduce_all(domain: Domain, batch: Batch) -> None:
    """Load what the commands of a domain need, and decide each."""
    kinds = domain.COMMANDS
    ours: list[tuple[int, Command]]
    ours = [one for one in enumerate(batch.commands) if type(one[1]) in kinds]
    domain.load([command for _, command in ours])
    domain.react()
    for index, command in ours:
        try:
            batch.outcomes[index] = domain.reduce(command)
        except RotaError as error:
            if domain.is_half_done(command):
                raise  # the pipeline executes the other commands without this one
            batch.outcomes[index] = error
    domain.close()


def state_after(batch: Batch) -> WriterState:
    """Return the state that the writer carries to the next batch."""
    before, decisions = batch.state, batch.decisions
    watches = decisions.get(NoteWatch)
    return WriterState(
        last_task_id=batch.snapshot.last_task_id,
        watch=watches[-1].watch if watches else before.watch,
        turns=before.turns,
        paused=paused_after(before.paused, decisions),
        last_seq=batch.last_seq,
        healths=batch.healths,
        sessions=batch.sessions,
        values=batch.values,
    )


def next_due_ms(decisions: Mapping[type[Decision], list[Any]]) -> int | None:
    """Return the earliest due time, deadline or time limit to start in these decisions."""
    moments: list[int] = []
    for one in decisions.get(AddTask, ()):
        if one.due_at_ms is not None:
            moments.append(one.due_at_ms)
        if one.task.start_within_ms is not None:
            moments.append(one.created_at_ms + one.task.start_within_ms)
    if len(decisions) == 1 and not moments and AddTask in decisions:
        return None  # as for most submissions
    for one in decisions.get(ReplaceTask, ()):
        moments += () if one.due_at_ms is None else (one.due_at_ms,)
        if one.options.start_within_ms is not None:
            moments.append(one.at_ms + one.options.start_within_ms)
    for one in decisions.get(RequeueTask, ()):
        moments += () if one.due_at_ms is None else (one.due_at_ms,)
    for one in decisions.get(LeaseTask, ()):
        moments += () if one.deadline_ms is None else (one.deadline_ms,)
    return min(moments) if moments else None
