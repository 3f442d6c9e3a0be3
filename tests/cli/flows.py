"""Runs for the tests of commands: a fan-out whose work is done by hand."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rota.sdk.client.client import Client
from tests.cli.conftest import Command, Hand

FAN_OUT = """name: {queue}
initial_node: begin
nodes:
  begin: {{}}
  work: {{task: work, input: {{item: branch.item}}, queue: {queue}, retry: {{max_attempts: 1}}}}
  total: {{task: total, input: {{all: state.all}}, output: {{output.all: result}}, queue: {queue}}}
transitions:
  - {{id: each, from: begin, to: work, foreach: input.items}}
  - from: work
    to: total
    synchronization:
      joins_transition: each
      on_branch_failure: continue
      merge: {{source: branch.output, target: state.all, strategy: collect}}
output: {{all: output.all}}
"""
SIGNALLED = """name: {name}
initial_node: approve
nodes:
  approve: {{approval: {{title: Really}}}}
  wait: {{wait_for: {{event: go}}}}
transitions:
  - {{from: approve, to: wait}}
output: {{said: nodes.wait.result}}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "flow.yaml"
    path.write_text(text)
    return str(path)


def started(rota: Command, folder: Path, text: str, run_input: Any = None) -> str:
    """The id of a new run."""
    file = written(folder, text)
    given = msgspec.json.encode(run_input or {}).decode()
    ended = rota("run", file, "--input", given)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout.strip()


def done_by_hand(client: Client, queue: str, tasks: int, *, failing: int = 0) -> None:
    """Do that many tasks of a queue; the first few fail."""
    hand = Hand(client, queue)
    for number in range(tasks):
        lease = hand.lease()
        if number < failing:
            hand.report(lease, ok=False, error="broken")
        else:
            hand.report(lease, ok=True, result=Raw(lease.payload))
