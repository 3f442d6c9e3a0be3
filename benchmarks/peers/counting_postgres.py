"""A queue in plain SQL that counts by key, as Hatchet's `GROUP_ROUND_ROBIN` does.

One row is one task. A worker takes the tasks that are among the first of their key, up to the limit
of the key, by numbering all rows of each key; an advisory lock lets one worker do so at a time.
Hatchet itself needs a server of its own with a message queue, which cannot be had from a package,
so this is the statement that it would run, without everything around it. It shows what numbering
costs: each claim reads every row.
"""

import os
import time
from typing import Any

import psycopg

from benchmarks import witness
from benchmarks.peers import measuring
from benchmarks.peers.measuring import Submitted

LIMIT = 1  # tasks of a key at a time
BATCH = 500
POLL_S = 0.001
LOCK = 16
SCHEMA = """
    CREATE TABLE task (id bigserial PRIMARY KEY, key text NOT NULL, is_running boolean NOT NULL);
    CREATE INDEX task_of_key ON task (key, id)
"""
SUBMIT = "INSERT INTO task (key, is_running) SELECT unnest(%(keys)s::text[]), false"
TAKE_LOCK = "SELECT pg_advisory_xact_lock(%(lock)s)"
CLAIM = """
    WITH numbered AS (
        SELECT id, is_running, row_number() OVER (PARTITION BY key ORDER BY id) AS place FROM task
    ), chosen AS (
        SELECT id FROM numbered WHERE place <= %(limit)s AND NOT is_running
        ORDER BY id LIMIT %(batch)s
    )
    UPDATE task SET is_running = true FROM chosen WHERE task.id = chosen.id RETURNING task.id
"""
FINISH = "DELETE FROM task WHERE id = ANY(%(ids)s)"


def connect() -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(os.environ[measuring.POSTGRES_VARIABLE], autocommit=True)


def work() -> None:
    """The worker process: claim, count and finish until it is ended."""
    tally = witness.Tally(measuring.keyed_tally(witness.folder()))
    with connect() as connection:
        while True:
            with connection.transaction():
                connection.execute(TAKE_LOCK, {"lock": LOCK})
                claimed = connection.execute(CLAIM, {"limit": LIMIT, "batch": BATCH}).fetchall()
            if not claimed:
                time.sleep(POLL_S)
                continue
            for _ in claimed:
                tally.count()
            connection.execute(FINISH, {"ids": [task_id for (task_id,) in claimed]})


class Peer:
    def __init__(self) -> None:
        self._connection = connect()
        self._connection.execute(SCHEMA)

    def describe(self) -> dict[str, Any]:
        return {
            "version": psycopg.__version__,
            "settings": {
                "store": os.environ[measuring.POSTGRES_SETTINGS_VARIABLE],
                "worker": f"claims of up to {BATCH} in a loop, all rows of each key numbered",
            },
        }

    def submit_keyed(self, tasks: int, limit_s: float) -> Submitted:
        keys = [f"key {number}" for number in range(measuring.KEYS)]

        def submit(size: int) -> None:
            wanted = (keys * (size // len(keys) + 1))[:size]
            self._connection.execute(SUBMIT, {"keys": wanted})

        return measuring.at_own_pace(submit, measuring.BULK, tasks, limit_s)

    def keyed_worker(self) -> list[str]:
        return measuring.python("-c", f"import {__name__} as peer; peer.work()")
