"""The workflow control-flow patterns, by number: those that the constructs express.

docs/explanation/workflow-patterns.md has the whole table, with those that are not offered.
"""

import re
from pathlib import Path
from typing import Any

from rota.core.workflow.events import TaskEnded
from tests.core.workflow.driving import Drive

TABLE = Path(__file__).parents[3] / "docs" / "explanation" / "workflow-patterns.md"


def graph(nodes: str, *transitions: str) -> str:
    """A definition of task nodes named by single words; `x:{...}` gives a node its fields."""
    found = re.findall(r"(\w+)(?::(\{.*?\}\}?))?(?:\s|$)", nodes)
    written = ", ".join(f"{name}: {fields or f'{{task: {name}}}'}" for name, fields in found)
    lines = "".join(f"  - {{{one}}}\n" for one in transitions)
    rest = f"transitions:\n{lines}" if lines else ""
    return f"name: p\ninitial_node: {found[0][0]}\nnodes: {{{written}}}\n{rest}"


def join(start: str, end: str, key: str, rule: str = "") -> str:
    merge = "merge: {source: branch.index, target: output.got}"
    return f"from: {start}, to: {end}, synchronization: {{joins_transition: {key}, {merge}{rule}}}"


def drive(text: str, run_input: Any = None, **more: Any) -> Drive:
    return Drive(text, run_input, **more)


def finish(run: Drive, node: str, result: Any = None) -> None:
    run.finish(run.at(node)[0], result)


def names(run: Drive) -> list[str]:
    """The nodes that are at work, in order."""
    return sorted(run.run.tokens[number].node for number in run.tasks)


SPLIT = ("from: a, to: b, sibling_group: g", "from: a, to: c, sibling_group: g")


def both(rule: str = "") -> tuple[str, str]:
    return join("b", "d", "g", rule), join("c", "d", "g", rule)


def test_01_sequence() -> None:
    run = drive(graph("a b", "from: a, to: b"))
    assert names(run) == ["a"]
    finish(run, "a")
    assert names(run) == ["b"]


def test_02_parallel_split() -> None:
    run = drive(graph("a b c", "from: a, to: b", "from: a, to: c"))
    finish(run, "a")
    assert names(run) == ["b", "c"]


def test_03_synchronization() -> None:
    run = drive(graph("a b c d", *SPLIT, *both()))
    finish(run, "a")
    finish(run, "c")
    assert names(run) == ["b"]
    finish(run, "b")
    assert names(run) == ["d"]


def test_04_exclusive_choice() -> None:
    text = graph("a b c", "from: a, to: b, condition: input.x", "from: a, to: c, priority: 2")
    for value, node in ((True, "b"), (False, "c")):
        run = drive(text, {"x": value})
        finish(run, "a")
        assert names(run) == [node]


def test_05_simple_merge() -> None:
    text = graph(
        "a b c d",
        "from: a, to: b, condition: input.x",
        "from: a, to: c, priority: 2",
        "from: b, to: d",
        "from: c, to: d",
    )
    run = drive(text, {"x": False})
    finish(run, "a")
    finish(run, "c")
    assert names(run) == ["d"]


def test_06_multi_choice() -> None:
    text = graph("a b c", *(f"from: a, to: {one}, condition: input.{one}" for one in "bc"))
    for wanted in ("", "b", "c", "bc"):
        run = drive(text, {one: one in wanted for one in "bc"})
        finish(run, "a")
        assert names(run) == list(wanted)


def test_07_structured_synchronizing_merge() -> None:
    split = (f"from: a, to: {one}, sibling_group: g, condition: input.{one}" for one in "bc")
    run = drive(graph("a b c d", *split, *both()), {"b": True, "c": False})
    finish(run, "a")
    finish(run, "b")
    assert names(run) == ["d"]


def test_08_multi_merge() -> None:
    text = graph("a b c d", "from: a, to: b", "from: a, to: c", "from: b, to: d", "from: c, to: d")
    run = drive(text)
    for node in "abc":
        finish(run, node)
    assert names(run) == ["d", "d"]


def test_09_structured_discriminator() -> None:
    run = drive(graph("a b c d", *SPLIT, *both(", wait_for: any, late: absorb")))
    finish(run, "a")
    finish(run, "c")
    assert names(run) == ["b", "d"]
    finish(run, "b")
    assert names(run) == ["d"]


def test_10_arbitrary_cycles() -> None:
    """Two loops that cross, with an entry into the middle of each."""
    text = graph(
        "a b c d",
        "from: a, to: b, condition: input.x",
        "from: a, to: c, priority: 2",
        "from: b, to: c",
        "from: c, to: b, max_iterations: 1",
        "from: c, to: d, priority: 2",
        "from: d, to: b, max_iterations: 1",
    )
    run = drive(text, {"x": False})
    for node in "acbcdbcd":
        finish(run, node)
    assert run.state == "completed"


def test_11_implicit_termination() -> None:
    run = drive(graph("a b c", "from: a, to: b", "from: a, to: c"))
    finish(run, "a")
    finish(run, "b")
    assert run.state == "running"
    finish(run, "c")
    assert run.state == "completed"


def test_12_multiple_instances_without_synchronization() -> None:
    run = drive(graph("a b", "from: a, to: b, spawn_count: 3"))
    finish(run, "a")
    assert names(run) == ["b", "b", "b"]


def test_13_multiple_instances_with_design_time_knowledge() -> None:
    run = drive(graph("a b c", "id: f, from: a, to: b, spawn_count: 2", join("b", "c", "f")))
    for node in "abb":
        finish(run, node)
    assert names(run) == ["c"]


def test_14_multiple_instances_with_run_time_knowledge() -> None:
    fan = "id: f, from: a, to: b, foreach: nodes.a.result"
    run = drive(graph("a b c", fan, join("b", "c", "f")))
    finish(run, "a", ["x", "y", "z"])
    assert names(run) == ["b", "b", "b"]
    for _ in range(3):
        finish(run, "b")
    assert names(run) == ["c"]


WAITS = graph(
    "a b:{wait_for: {event: b}} c:{wait_for: {event: c}} d",
    *SPLIT,
    *both(", wait_for: any"),
)


def test_16_deferred_choice() -> None:
    """The world chooses: what happens first withdraws the other."""
    run = drive(WAITS)
    finish(run, "a")
    assert set(run.run.waiting) == {"b", "c"}
    run.signal("c")
    assert not run.run.waiting
    assert names(run) == ["d"]


def test_17_interleaved_parallel_routing() -> None:
    """In part: whole branches one after the other, each in its own order."""
    split = (f"from: a, to: {one}, sibling_group: g, max_parallel: 1" for one in "bc")
    text = graph("a b e c d", *split, "from: b, to: e", join("e", "d", "g"), join("c", "d", "g"))
    run = drive(text)
    for node in "abec":
        assert names(run) == [node]
        finish(run, node)
    assert names(run) == ["d"]


def test_19_cancel_task() -> None:
    text = graph("a:{task: a, on_error: [{to: b}]} b")
    run = drive(text)
    del run.tasks[1]
    error = {"type": "cancelled", "message": "by hand"}
    run.feed(TaskEnded(2_000, 1, ok=False, error=error, cancelled=True))
    assert run.states[1] == "cancelled"
    assert names(run) == ["b"]


def test_20_cancel_case() -> None:
    run = drive(graph("a b", "from: a, to: b, spawn_count: 3"))
    finish(run, "a")
    run.cancel()
    assert run.state == "cancelled"
    assert not run.tasks


def test_21_structured_loop() -> None:
    text = graph(
        "a b",
        "from: a, to: a, condition: nodes.a.result < 3, max_iterations: 10",
        "from: a, to: b, priority: 2",
    )
    run = drive(text)
    for number in (1, 2, 3):
        finish(run, "a", number)
    assert names(run) == ["b"]


def test_22_recursion() -> None:
    text = graph(
        "a:{} b:{workflow: p, input: {n: input.n - 1}} c",
        "from: a, to: b, condition: input.n > 0",
        "from: a, to: c, priority: 2",
    )
    run = Drive(text, {"n": 3}, {"c": lambda _: None}, workflows={"p": text}).to_end()
    assert run.state == "completed"


def test_24_persistent_trigger() -> None:
    run = drive(graph("a b:{wait_for: {event: e}} c", "from: a, to: b", "from: b, to: c"))
    run.signal("e")
    finish(run, "a")
    assert names(run) == ["c"]


def test_25_cancel_region() -> None:
    """In part: the region is a scope; its join withdraws all that is left in it."""
    text = graph("a b e c d", *SPLIT, "from: b, to: e, spawn_count: 3", *both(", wait_for: any"))
    run = drive(text)
    finish(run, "a")
    finish(run, "b")
    assert names(run) == ["c", "e", "e", "e"]
    finish(run, "c")
    assert names(run) == ["d"]


def test_26_cancel_multiple_instance_task() -> None:
    text = graph(
        "a b:{} e f:{} c:{wait_for: {event: stop}} d",
        *SPLIT,
        "id: many, from: b, to: e, spawn_count: 3",
        join("e", "f", "many"),
        join("f", "d", "g", ", wait_for: any"),
        join("c", "d", "g", ", wait_for: any"),
    )
    run = drive(text)
    finish(run, "a")
    finish(run, "e")
    run.signal("stop")
    assert names(run) == ["d"]


def test_27_complete_multiple_instance_task() -> None:
    """In part: after a time, with what there is."""
    rule = ", timeout_ms: 50, on_timeout: proceed"
    text = graph("a b c", "id: f, from: a, to: b, spawn_count: 3", join("b", "c", "f", rule))
    run = drive(text)
    finish(run, "a")
    finish(run, "b")
    run.turn_clock()
    assert names(run) == ["c"]
    assert run.document("output") == {"got": [0]}


def test_29_cancelling_discriminator() -> None:
    run = drive(graph("a b c d", *SPLIT, *both(", wait_for: any, late: cancel")))
    finish(run, "a")
    finish(run, "c")
    assert names(run) == ["d"]


def _partial(rule: str, fan: str = "") -> Drive:
    if fan:
        run = drive(graph("a b d", fan, join("b", "d", "f", rule)))
        nodes = "abb"
    else:
        split = (*SPLIT, "from: a, to: e, sibling_group: g")
        run = drive(graph("a b c e d", *split, *both(rule), join("e", "d", "g", rule)))
        nodes = "abc"
    for node in nodes:
        assert "d" not in names(run)
        finish(run, node)
    return run


def test_30_structured_partial_join() -> None:
    assert names(_partial(", wait_for: {m_of_n: 2}, late: absorb")) == ["d", "e"]


def test_32_cancelling_partial_join() -> None:
    assert names(_partial(", wait_for: {m_of_n: 2}")) == ["d"]


MANY = "id: f, from: a, to: b, spawn_count: 3"


def test_34_static_partial_join_for_multiple_instances() -> None:
    assert names(_partial(", wait_for: {m_of_n: 2}, late: absorb", MANY)) == ["b", "d"]


def test_35_cancelling_partial_join_for_multiple_instances() -> None:
    assert names(_partial(", wait_for: {m_of_n: 2}", MANY)) == ["d"]


def test_37_local_synchronizing_merge() -> None:
    """A branch that takes a way past the join is not waited for."""
    text = graph(
        "a b c d e",
        *SPLIT,
        "from: b, to: e, condition: input.past",
        join("b", "d", "g").replace("to: d", "to: d, priority: 2"),
        join("c", "d", "g"),
    )
    run = drive(text, {"past": True})
    for node in "abc":
        finish(run, node)
    assert names(run) == ["e"]
    finish(run, "e")
    assert names(run) == ["d"]


def test_38_general_synchronizing_merge() -> None:
    """In part: inside a scope, whatever loops and detours its branches take."""
    text = graph(
        "a b c d",
        *SPLIT,
        "from: b, to: b, condition: nodes.b.result, max_iterations: 5",
        join("b", "d", "g").replace("to: d", "to: d, priority: 2"),
        join("c", "d", "g"),
    )
    run = drive(text)
    finish(run, "a")
    finish(run, "c")
    for is_again in (True, True, False):
        assert names(run) == ["b"]
        finish(run, "b", is_again)
    assert names(run) == ["d"]


def test_40_interleaved_routing() -> None:
    split = (f"from: a, to: {one}, sibling_group: g, max_parallel: 1" for one in "bc")
    run = drive(graph("a b c d", *split, *both()))
    finish(run, "a")
    assert len(names(run)) == 1
    run.finish(next(iter(run.tasks)))
    assert len(names(run)) == 1
    run.finish(next(iter(run.tasks)))
    assert names(run) == ["d"]


def test_41_thread_merge() -> None:
    run = drive(graph("a b c", MANY, join("b", "c", "f")))
    for node in "abbb":
        finish(run, node)
    assert names(run) == ["c"]


def test_42_thread_split() -> None:
    run = drive(graph("a b", MANY))
    finish(run, "a")
    assert names(run) == ["b", "b", "b"]


def test_43_explicit_termination() -> None:
    run = drive(graph("a b c:{end: completed}", "from: a, to: b", "from: a, to: c"))
    finish(run, "a")
    assert run.state == "completed"
    assert not run.tasks


def test_the_table_and_the_tests_tell_the_same() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| (yes|in part|no) \|", TABLE.read_text(), re.MULTILINE)
    tested = {int(name[5:7]) for name in globals() if re.match(r"test_\d\d_", name)}

    assert [int(number) for number, _ in rows] == list(range(1, 44))
    assert {int(number) for number, offered in rows if offered != "no"} == tested
