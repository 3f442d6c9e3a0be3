"""Every moment of a run's past is painted as it was."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from rota.core import ids
from rota.core.workflow.definition.model import Definition
from rota.engine.runs import counter_history
from rota.engine.runs.projections import RunProjection
from rota.gateways.http.views.runs import graph_view
from tests.gateways.serving import Api
from tests.gateways.working import Bench, Broken

NESTED = """
name: nested
initial_node: begin
nodes:
  begin: {}
  outer: {task: outer, input: {n: branch.item}, retry: {max_attempts: 1}}
  inner: {task: inner, input: {n: branch.index}}
  sum: {}
  end: {task: end}
  never: {}
transitions:
  - {id: outer, from: begin, to: outer, foreach: input.items}
  - {id: inner, from: outer, to: inner, spawn_count: 3}
  - {from: inner, to: sum, synchronization: {joins_transition: inner, wait_for: {m_of_n: 2}}}
  - {from: sum, to: end, synchronization: {joins_transition: outer, on_branch_failure: continue}}
  - {from: end, to: never, condition: "false"}
"""


def outer(payload: Any) -> Any:
    if payload["n"] == 2:
        raise Broken("no")
    return payload


HANDLERS = {"outer": outer, "inner": lambda payload: payload, "end": lambda _: None}


@pytest.mark.parametrize("every", [3, 256])
async def test_every_moment_is_painted_as_if_the_journal_had_ended_there(
    api: Api, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(counter_history, "STILL_EVERY", every)
    bench = await Bench.at(api)
    run = await bench.carry_out(NESTED, {"items": [1, 2, 3]}, HANDLERS)
    queries, run_id = api.node.coordinator.queries, ids.from_text(run["id"])
    assert run_id is not None
    entries = await queries.runs.journal(run_id, after=0, limit=10_000)
    record = await queries.runs.by_id(run_id)
    assert record is not None
    definition = await queries.workflows.definition(record.workflow, record.version)
    assert isinstance(definition, Definition)

    for entry in entries:
        painted = (await api.get(f"/api/runs/{run['id']}/graph?at={entry.number}")).json()

        trace = RunProjection(entries[: entry.number])
        view = msgspec.to_builtins(graph_view(record, definition, trace))
        assert painted["nodes"] == view["nodes"]
        assert painted["transitions"] == view["transitions"]
        assert (painted["number"], painted["at_ms"]) == (entry.number, entry.at_ms)
        states = Counter((token.node, token.state.value) for token in trace.tokens.values())
        shown = {
            (node["id"], state): count
            for node in painted["nodes"]
            for state, count in node["tokens"].items()
        }
        assert shown == states
    assert len(entries) > 10
