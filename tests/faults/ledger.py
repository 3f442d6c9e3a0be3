"""What was acknowledged, and does a store still know it?

A ledger is written by the caller that gets the answers. An answer binds; a call that got none may
have happened or not, and is not in the ledger. Everything that breaks a promise is kept as a
sentence, so that a test can demand that there is none, and a control that there are some.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rota.core.ids import TaskId, to_text
from rota.core.tasks.model import TaskRecord, TaskState
from rota.store.database import Database, Row, Transaction
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore

Look = Callable[[str], list[Row]]  # what a query of one's own finds in the store

# A live task stands in exactly one place; a finished one is a row of history and nothing else.
MISPLACED = """
WITH place AS MATERIALIZED (
  SELECT id FROM ready UNION ALL SELECT id FROM scheduled UNION ALL SELECT id FROM lease)
SELECT id FROM task WHERE (SELECT count(*) FROM place WHERE place.id = task.id) <> 1
 UNION ALL
SELECT id FROM place WHERE id NOT IN (SELECT id FROM task)
 UNION ALL
SELECT id FROM history WHERE id IN (SELECT id FROM task)
"""
DOUBLED_KEYS = """
SELECT key FROM (SELECT key FROM task UNION ALL SELECT key FROM history) AS known
 WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1
"""
UNKNOWN_LANES = """
SELECT DISTINCT lane FROM (SELECT lane FROM task UNION ALL SELECT lane FROM history) AS known
 WHERE lane NOT IN (SELECT number FROM lane)
"""


@dataclass
class Ledger:
    payloads: dict[TaskId, bytes] = field(default_factory=dict)  # of acknowledged submissions
    keys: dict[str, TaskId] = field(default_factory=dict)
    fences: dict[TaskId, int] = field(default_factory=dict)  # the highest that was granted
    ends: dict[TaskId, tuple[TaskState, bytes | None]] = field(default_factory=dict)
    incarnations: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # promises broken by an answer itself

    # --- answers ------------------------------------------------------------------------------

    def submitted(self, task_id: TaskId, payload: bytes, key: str | None) -> None:
        self.payloads[task_id] = payload
        if key is not None and self.keys.setdefault(key, task_id) != task_id:
            self._break(f"key {key} was answered with two tasks", task_id)

    def leased(self, task_id: TaskId, fence: int) -> None:
        if fence <= self.fences.get(task_id, 0):
            self._break(f"leased at fence {fence} after {self.fences[task_id]}", task_id)
        if task_id in self.ends:
            self._break("leased after its end", task_id)
        self.fences[task_id] = fence

    def finished(self, task_id: TaskId, state: TaskState, result: bytes | None = None) -> None:
        if task_id in self.ends:
            self._break(f"accepted as {state} after {self.ends[task_id][0]}", task_id)
        self.ends[task_id] = (state, result)

    def confirmed(self, task_id: TaskId, state: TaskState, result: bytes | None = None) -> None:
        """A repetition was answered as such: what got no answer the first time had happened."""
        if self.ends.setdefault(task_id, (state, result)) != (state, result):
            self._break(f"confirmed as {state} after {self.ends[task_id][0]}", task_id)

    def registered(self, incarnation: int) -> None:
        if self.incarnations and incarnation <= self.incarnations[-1]:
            self.broken.append(f"incarnation {incarnation} after {self.incarnations[-1]}")
        self.incarnations.append(incarnation)

    def _break(self, sentence: str, task_id: TaskId) -> None:
        self.broken.append(f"task {to_text(task_id)}: {sentence}")

    # --- checks -------------------------------------------------------------------------------

    def problems(self, database: SqliteDatabase) -> list[str]:
        """Everything that the store no longer knows, or knows otherwise."""
        integrity = database._writer.pragma("integrity_check")
        if integrity != "ok":
            return [*self.broken, f"integrity_check: {integrity}"]
        return self.problems_in(database, lambda sql: database._writer.execute(sql).fetchall())

    def problems_in(self, database: Database, look: Look) -> list[str]:
        """As `problems`, of any store."""
        found = list(self.broken)
        for query in (MISPLACED, DOUBLED_KEYS, UNKNOWN_LANES):
            found += [f"{row[0]} is found by {' '.join(query.split())}" for row in look(query)]
        # What contradicts itself cannot be read as tasks.
        return found or database.read(self._lost)

    def _lost(self, tx: Transaction) -> list[str]:
        lanes = Lanes()
        lanes.load(tx)
        ids = self.payloads.keys() | self.fences.keys() | self.ends.keys()
        known = TaskStore(tx, lanes).by_ids(list(ids))
        places = {key: ("default", key) for key in self.keys}
        by_key = TaskStore(tx, lanes).by_keys(places.values())
        found = [
            f"key {key} no longer leads to task {to_text(task_id)}"
            for key, task_id in self.keys.items()
            if places[key] not in by_key or by_key[places[key]].id != task_id
        ]
        for task_id in sorted(ids):
            sentences = self._differences(task_id, known.get(task_id))
            found += [f"task {to_text(task_id)} {sentence}" for sentence in sentences]
        return found

    def _differences(self, task_id: TaskId, task: TaskRecord | None) -> Iterable[str]:
        if task is None:
            yield "is lost"
            return
        if task.payload != self.payloads.get(task_id, task.payload):
            yield "has another payload"
        if task.fence < self.fences.get(task_id, 0):
            yield f"has fence {task.fence}, below {self.fences[task_id]}"
        if task_id in self.ends and (task.state, task.result) != self.ends[task_id]:
            yield f"is {task.state} with {task.result!r}, not {self.ends[task_id]}"
