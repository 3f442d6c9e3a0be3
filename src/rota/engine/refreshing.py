"""What has become of what we remember, now that others have written?

All that is carried from batch to batch in memory is true as long as nobody else writes. Where
several coordinators share a store, each batch is told whether somebody has, and then begins by
reading it anew: with one query for the facts, and further ones only for what has changed.
"""

from rota.engine.remembering import Memory
from rota.engine.runs import RunCache
from rota.engine.sessions import SessionMemory
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.queues import Queues
from rota.store.replicas import Replicas


def refreshed(tx: Transaction, before: Memory, lanes: Lanes, runs: RunCache) -> Memory:
    """What there is to remember, as the store has it; lanes and runs are brought up to date."""
    facts = Replicas(tx).facts()
    lanes.keep_up(tx, facts.last_lane)
    runs.grow_old()
    runs.has_tasks = facts.has_run_tasks
    runs.has_staged = facts.has_staged
    return Memory(
        # Numbers never fall while a coordinator runs.
        last_task_id=max(before.last_task_id, facts.last_task_id),
        watch=facts.watch.watch,
        turns=before.turns,
        paused=frozenset(Queues(tx).paused()),
        has_open_breakers=facts.has_open_breakers,
        has_cancelled=facts.has_cancelled,
        last_seq=max(before.last_seq, facts.last_seq),
        healths=facts.watch.healths,
        sessions=SessionMemory(
            has_tasks=facts.has_session_tasks,
            last_news=max(before.sessions.last_news, facts.last_news),
        ),
        workers=facts.workers,
        services=facts.services,
    )
