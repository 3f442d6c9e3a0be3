"""Workflows as programs build, start and follow them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota import Rota, RunCancelled, RunFailed, TaskFailed, current
from rota.core.workflow.definition.model import Definition
from rota.errors import Conflict, IllegalState, Invalid, InvalidWorkflow, NotFound, NothingToApprove
from rota.sdk.definitions import definition_of, yaml_of
from rota.testing import TestCoordinator

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"
PANEL = """
name: panel
initial_node: ask
nodes:
  ask: {task: ask, input: {question: input.question}, output: {state.draft: result}}
  judge: {task: judge, input: {draft: state.draft, by: branch.item}}
  tally: {task: tally, input: {verdicts: state.verdicts}, output: {output.count: result}}
transitions:
  - {id: panel, from: ask, to: judge, foreach: input.judges}
  - from: judge
    to: tally
    synchronization:
      joins_transition: panel
      wait_for: {m_of_n: 2}
      merge: {source: branch.output, target: state.verdicts, strategy: collect}
output: {count: output.count}
"""

app = Rota("http://127.0.0.1:1")


@app.task
def ask(question: str) -> str:
    return f"{question}!"


@app.task
async def judge(draft: str, by: str) -> str:
    await asyncio.sleep(0)
    return f"{by}: {draft}"


@app.task(max_attempts=1)
def fetch(page: int) -> int:
    """Follow the link of a page, if it is one of the first few; twice, which counts once."""
    if 0 < page < 10:
        current().add_branches([page - 1])
        current().add_branches([page - 1])
    return page


@app.task
def tally(verdicts: list[str]) -> int:
    return len(verdicts)


@app.task(queue="mail", max_attempts=5, requires=["smtp"], timeout_ms=9_000, priority=3)
def send(to: str = "all") -> str:
    return to


@app.task(max_attempts=1)
def break_down() -> None:
    raise LookupError("gone")


@app.task
def keep() -> str:
    current().attach("note.txt", "kept", media_type="text/plain")
    return str(current().run_id)


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    with TestCoordinator() as one:
        one.attach(app)
        yield one


def built_panel() -> Definition:
    flow = app.workflow("panel", output={"count": "output.count"})
    first = flow.node(
        "ask",
        task=ask,
        input={"question": "input.question"},
        output={"state.draft": "result"},
    )
    second = flow.node("judge", task="judge", input={"draft": "state.draft", "by": "branch.item"})
    last = flow.node(
        "tally", task=tally, input={"verdicts": "state.verdicts"}, output={"output.count": "result"}
    )
    panel = flow.transition(first, second, foreach="input.judges", id="panel")
    flow.join(
        second,
        last,
        of=panel,
        wait_for=2,
        merge={"source": "branch.output", "target": "state.verdicts", "strategy": "collect"},
    )
    return flow.definition


# --- building -----------------------------------------------------------------------------------


def test_python_and_yaml_give_the_same_definition() -> None:
    assert built_panel() == app.workflow(PANEL).definition


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_yaml_comes_back_as_the_same_definition(path: Path) -> None:
    definition = app.workflow(path).definition

    assert app.workflow(str(path)).definition == definition
    assert app.workflow(app.workflow(definition).yaml()).definition == definition


@example({"0E0": None, "1e5": "1e5", "007": "no"})
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_constant_survives_being_written_as_yaml(value: object) -> None:
    nodes = {"a": {"task": "t", "input": {"constant": [value]}}}
    definition = definition_of({"name": "x", "initial_node": "a", "nodes": nodes})

    assert repr(definition_of(yaml_of(definition))) == repr(definition)


def test_a_program_builds_nodes_that_signal_wait_again_and_cancel() -> None:
    flow = app.workflow("desk")
    flow.node("start")
    flow.node("order", wait_for={"event": "order", "repeat": True, "until": {"event": "closed"}})
    flow.node("bell", wait_for={"event": "bell", "transient": True})
    flow.node("told", signal="told")
    flow.node("shop", signal={"run": "input.shop", "name": "order", "payload": {"by": "run.id"}})
    flow.node("stop", end="cancelled")
    for node in ("order", "bell", "told", "shop"):
        flow.transition("start", node)
    flow.transition("shop", "stop", condition="input.is_late")

    assert flow.definition == definition_of("""
name: desk
initial_node: start
nodes:
  start: {}
  order: {wait_for: {event: order, repeat: true, until: {event: closed}}}
  bell: {wait_for: {event: bell, transient: true}}
  told: {signal: {name: told}}
  shop: {signal: {run: input.shop, name: order, payload: {by: run.id}}}
  stop: {end: cancelled}
transitions:
  - {from: start, to: order}
  - {from: start, to: bell}
  - {from: start, to: told}
  - {from: start, to: shop}
  - {from: shop, to: stop, condition: input.is_late}
""")
    assert definition_of(flow.yaml()) == flow.definition


def test_a_tasks_own_options_go_into_its_node() -> None:
    flow = app.workflow("mailing")
    flow.node("all", task=send)
    flow.node("one", task=send, queue="slow", retry={"max_attempts": 1})
    flow.transition("all", "one")

    nodes = flow.definition.nodes

    assert (nodes["all"].queue, nodes["all"].requires) == ("mail", ("smtp",))
    assert (nodes["all"].timeout_ms, nodes["all"].priority) == (9_000, 3)
    assert nodes["all"].retry is not None
    assert nodes["all"].retry.max_attempts == 5
    assert nodes["one"].queue == "slow"
    assert nodes["one"].retry is not None
    assert nodes["one"].retry.max_attempts == 1


def test_all_problems_are_raised_at_once() -> None:
    flow = app.workflow("broken")
    flow.node("a", task="t", input={"x": "input.("})
    flow.transition("a", "nowhere")

    with pytest.raises(InvalidWorkflow, match=r"'broken' has 2 problems") as caught:
        flow.validate()

    paths = {problem["path"] for problem in caught.value.facts["problems"]}
    assert paths == {"nodes.a.input.x", "transitions[0].to"}
    assert {one.path for one in flow.problems()} == paths


def test_problems_of_a_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(PANEL.replace("to: tally", "to: nowhere"))

    with pytest.raises(InvalidWorkflow, match=r"line 11: transitions\[1\].to: no node 'nowhere'"):
        app.workflow(path)


def test_what_cannot_be_built_is_told_where_it_is_tried() -> None:
    flow = app.workflow("twice")
    flow.node("a")

    with pytest.raises(Invalid, match="has a node 'a' already"):
        flow.node("a")
    with pytest.raises(Invalid, match="needs an id"):
        flow.join("a", "b", of=flow.transition("a", "a", spawn_count=2))
    with pytest.raises(Invalid, match="cannot be read"):
        app.workflow("missing.yaml")
    with pytest.raises(Invalid, match="give none here"):
        app.workflow(PANEL, description="other")


# --- running ------------------------------------------------------------------------------------


def test_a_run_gives_its_output(coordinator: TestCoordinator) -> None:
    flow = app.workflow(PANEL)

    run = flow.start({"question": "To be", "judges": ["a", "b", "c"]})

    assert run.status() == "running"
    assert run.result(timeout=30) == {"count": 2}
    assert run.status() == "completed"
    assert run.tokens()[0].node_id == "ask"
    assert {node.id for node in run.graph().nodes} == {"ask", "judge", "tally"}


async def test_a_run_is_started_and_awaited_by_async_code(coordinator: TestCoordinator) -> None:
    run = await app.workflow(PANEL).astart({"question": "To be", "judges": ["a", "b"]})

    assert await run.aresult() == {"count": 2}
    assert await run.astatus() == "completed"


def test_a_definition_is_deployed_once_and_again_when_it_has_changed(
    coordinator: TestCoordinator,
) -> None:
    flow = app.workflow("growing")
    flow.node("a", task=tally, input={"verdicts": []})

    first, second = flow.start(), flow.start()
    flow.node("b")
    flow.transition("a", "b")
    third = flow.start()

    assert [run.view().version for run in (first, second, third)] == [1, 1, 2]
    assert app.workflow("growing").start().view().version == 2
    assert app.workflow("growing").start(version=1).view().version == 1


def test_the_same_key_gives_the_same_run(coordinator: TestCoordinator) -> None:
    flow = app.workflow(PANEL)
    run_input = {"question": "To be", "judges": ["a", "b"]}

    first, again = flow.start(run_input, key="k"), flow.start(run_input, key="k")

    assert first.id == again.id
    assert (first.is_duplicate, again.is_duplicate) == (False, True)


def test_a_failed_run_raises_the_real_error_and_can_be_retried(
    coordinator: TestCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = app.workflow("fragile", output={"done": "true"})
    flow.node("fall", task=break_down)
    run = flow.start()

    with pytest.raises(RunFailed, match="LookupError: gone") as caught:
        run.result()
    monkeypatch.setattr(break_down, "function", lambda: None)
    run.retry()

    assert (caught.value.node, caught.value.state) == ("fall", "failed")
    assert "in break_down" in str(caught.value.__cause__)
    assert run.result() == {"done": True}


def test_a_wait_that_times_out_says_what_the_run_waits_for(coordinator: TestCoordinator) -> None:
    flow = app.workflow("patient")
    flow.node("wait", wait_for="paid")
    run = flow.start()

    with pytest.raises(TimeoutError, match="is still running after 0 s: signal 'paid'"):
        run.result(timeout=0)


def test_a_cancelled_run_says_so(coordinator: TestCoordinator) -> None:
    flow = app.workflow("waiting")
    flow.node("wait", wait_for="go")
    run = flow.start()

    run.cancel("no longer needed")

    with pytest.raises(RunCancelled, match="no longer needed"):
        run.result()
    with pytest.raises(Conflict):
        run.cancel()


def test_scopes_are_listed_completed_and_cancelled(coordinator: TestCoordinator) -> None:
    flow = app.workflow("panel_of_people", output={"said": "state.said"})
    flow.node("begin")
    flow.node("ask", wait_for="answer")
    flow.node("tally")
    people = flow.transition("begin", "ask", foreach="input.people", id="people")
    flow.join(
        "ask",
        "tally",
        of=people,
        wait_for={"m_of_n": "size(input.people)"},
        complete_on="enough",
        merge={"target": "state.said", "strategy": "collect"},
    )
    completed, cancelled = flow.start({"people": ["a", "b"]}), flow.start({"people": ["a"]})
    completed.signal("answer", "yes")

    (scope,) = completed.scopes()
    completed.complete_scope(scope.number, "one will do")
    cancelled.cancel_scope(1)

    assert (scope.joins[0].arrived, scope.joins[0].needed) == (1, 2)
    assert scope.joins[0].complete_on == "enough"
    assert completed.result() == {"said": ["yes"]}
    assert completed.scopes() == []
    assert completed.scopes(closed=True)[0].because == "one will do"
    assert cancelled.status() in {"completed", "failed"}
    assert flow.definition == definition_of(flow.yaml())


def test_tasks_and_callers_add_branches_to_an_open_scope(coordinator: TestCoordinator) -> None:
    flow = app.workflow("crawl", output={"seen": "state.seen"})
    flow.node("begin")
    flow.node("fetch", task=fetch, input={"page": "branch.item"})
    flow.node("done")
    pages = flow.transition("begin", "fetch", foreach="input.pages", id="pages", open="until_done")
    flow.join("fetch", "done", of=pages, merge={"target": "state.seen", "strategy": "collect"})
    run = flow.start({"pages": [2]})
    added = run.add_branches(1, [10], key="k")
    again = run.add_branches(1, [10], key="k")

    assert (added.first_index, added.duplicate, again.duplicate) == (1, False, True)
    assert run.result() == {"seen": [2, 10, 1, 0]}
    with pytest.raises(TaskFailed, match="belongs to no run"):
        fetch.enqueue(1).result()


def test_signals_and_approvals_let_a_run_go_on(coordinator: TestCoordinator) -> None:
    flow = app.workflow("release", output={"said": "nodes.wait.result"})
    flow.node("wait", wait_for="go")
    flow.node("approve", approval=True)
    flow.transition("wait", "approve")
    run = flow.start()

    with pytest.raises(IllegalState, match="send the signal it waits for"):
        run.result()
    run.signal("go", {"who": "ada"})
    with pytest.raises(NothingToApprove):
        run.signal("approve", {"approved": True}, token_id=f"{run.id}.1")
    run.signal("approve", {"approved": True}, key="yes")
    run.signal("approve", {"approved": True}, key="yes")

    assert run.result() == {"said": {"who": "ada"}}


def test_a_paused_run_begins_nothing_new(coordinator: TestCoordinator) -> None:
    run = app.workflow(PANEL).start({"question": "To be", "judges": ["a", "b"]})

    run.pause()
    coordinator.drain()
    paused = run.status()
    run.resume()

    assert paused == "paused"
    assert run.result() == {"count": 2}


def test_a_fork_begins_in_the_middle_with_another_state(coordinator: TestCoordinator) -> None:
    run = app.workflow(PANEL).start({"question": "To be", "judges": ["a", "b"]})
    run.result()

    fork = run.fork("tally", {"verdicts": ["x", "y", "z"]})

    assert fork.id != run.id
    assert fork.result() == {"count": 3}


def test_the_clock_fires_the_timers_of_runs(coordinator: TestCoordinator) -> None:
    flow = app.workflow("sleeping", output={"awake": "true"})
    flow.node("sleep", sleep_ms=60_000)
    run = flow.start()

    coordinator.clock.advance(ms=59_999)
    before = run.status()
    coordinator.clock.advance(ms=1)

    assert (before, run.status()) == ("running", "completed")
    assert run.result() == {"awake": True}


def test_draining_until_finished_sleeps_for_runs(coordinator: TestCoordinator) -> None:
    flow = app.workflow("napping")
    flow.node("sleep", sleep_ms=60_000)
    flow.node("send", task=tally, input={"verdicts": ["x"]})
    flow.transition("sleep", "send")
    run = flow.start()

    drained = coordinator.drain(until_finished=True)

    assert drained.results("tally") == [1]
    assert run.status() == "completed"


def test_a_run_that_takes_too_long_times_out(coordinator: TestCoordinator) -> None:
    flow = app.workflow("endless")
    flow.node("wait", wait_for="never")
    run = flow.start(timeout_ms=1_000)

    coordinator.clock.advance(seconds=1)

    with pytest.raises(RunFailed) as caught:
        run.result()
    assert caught.value.state == "timed_out"


def test_a_task_attaches_artifacts_to_its_run(coordinator: TestCoordinator) -> None:
    flow = app.workflow("keeping", output={"run": "nodes.keep.result"})
    flow.node("keep", task=keep)
    run = flow.start()

    assert run.result() == {"run": run.id}
    (artifact,) = run.artifacts()
    assert (artifact.name, artifact.media_type) == ("note.txt", "text/plain")
    assert run.artifact("note.txt") == b"kept"
    with pytest.raises(NotFound):
        run.artifact("other.txt")


def test_a_task_without_a_run_has_nowhere_to_attach_to(coordinator: TestCoordinator) -> None:
    handle = keep.using(max_attempts=1).enqueue()

    performed = coordinator.drain().performed[0]

    assert performed.error is not None
    assert "does not belong to a run" in performed.error.message
    assert handle.status() == "failed"


def test_a_handle_is_made_anew_from_its_id(coordinator: TestCoordinator) -> None:
    run = app.workflow(PANEL).start({"question": "To be", "judges": ["a", "b"]})

    assert app.run_handle(run.id).result() == {"count": 2}
    with pytest.raises(NotFound):
        app.run_handle("0" * 16).view()


def test_an_embedded_coordinator_runs_workflows_by_itself(tmp_path: Path) -> None:
    with Rota(f"sqlite:///{tmp_path / 'rota.db'}") as own:

        @own.task
        def double(number: int) -> int:
            return number * 2

        flow = own.workflow("doubling", output={"doubled": "nodes.double.result"})
        flow.node("double", task=double, input={"number": "input.number"})

        assert flow.start({"number": 21}).result(timeout=30) == {"doubled": 42}


def test_without_an_input_there_is_an_empty_one(coordinator: TestCoordinator) -> None:
    flow = app.workflow("bare", input={"type": "object"}, output={"given": "input"})
    flow.node("a")

    assert flow.start().result() == {"given": {}}


def test_an_input_that_breaks_its_schema_starts_nothing(coordinator: TestCoordinator) -> None:
    flow = app.workflow("picky", input={"type": "object", "required": ["name"]})
    flow.node("a")

    with pytest.raises(Invalid, match="name"):
        flow.start({})


def test_a_run_of_many_steps_comes_to_its_end_in_a_test(coordinator: TestCoordinator) -> None:
    flow = app.workflow("long")
    flow.node("a")
    flow.transition("a", "a", max_iterations=2_000)

    assert flow.start().result() == {}
