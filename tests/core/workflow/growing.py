"""Random well-formed definitions: what can be drawn can be run to its end.

A definition is grown from blocks that fit into each other: a node, a sequence, a choice, a loop
with a limit, a fan-out with its join, a split inside a branch, a way that may end early. Every
branch marks itself on entering, and every task tells which mark it sees: isolation can be checked
at every task of every graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from rota.core.workflow.definition.model import Definition

CHILD = msgspec.convert(
    {
        "name": "child",
        "initial_node": "pay",
        "nodes": {
            "pay": {"task": "pay", "compensate": "undo"},
            "work": {"task": "work", "input": {"of": "input.of"}},
            "last": {},
        },
        "transitions": [
            {"from": "pay", "to": "work"},
            {"id": "out", "from": "work", "to": "last", "spawn_count": 2},
        ],
        "output": {"of": "input.of"},
    },
    Definition,
)


@cache
def places(count: int) -> st.SearchStrategy[int]:
    """Made once: to make and check a strategy takes longer than to draw from it."""
    return st.integers(0, count - 1)


@dataclass
class Growth:
    """What has been drawn so far."""

    draw: Any
    room: int = 22  # nodes that may still be drawn
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)  # open ones
    fan_outs: int = 0

    def pick(self, *choices: Any) -> Any:
        return choices[self.draw(places(len(choices)))]

    def node(self, **fields: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes[name] = fields
        self.room -= 1
        return name

    def link(self, start: str, end: str, **fields: Any) -> None:
        self.transitions.append({"from": start, "to": end, **fields})

    def task(self) -> str:
        told = {"of": "branch.index", "mark": f"state.{self.scopes[-1]}"} if self.scopes else {}
        more: dict[str, Any] = self.pick({}, {"output": {"state.own": "result"}})
        undo = self.pick({}, {}, {}, {}, {"compensate": "undo"})
        task = "pay" if undo else "work"
        return self.node(task=task, input={**told, "of_root": "1"}, **more, **undo)

    def leaf(self) -> str:  # noqa: PLR0911 - a table
        kinds = ("pass", "sleep", "wait", "child", "approval", "signal", "repeat")
        match self.pick(*["task"] * 8, *kinds):
            case "task":
                return self.task()
            case "pass":
                return self.node()
            case "sleep":
                return self.node(sleep_ms=self.pick(0, 5, 50))
            case "wait":
                return self.node(
                    wait_for={"event": "go", "timeout_ms": 500}, on_error=[{"to": self.node()}]
                )
            case "signal":
                run = self.pick({}, {}, {"run": "'another'"})
                return self.node(signal={"name": "come", "payload": {"n": "input.n"}, **run})
            case "repeat":
                wait = self.pick(
                    {"event": "go", "repeat": True, "until": {"event": "halt"}},
                    {"event": "go", "repeat": 2},
                    {"event": "come"},
                    {"event": "come", "transient": True},
                )
                caught = self.node()
                return self.node(wait_for={**wait, "timeout_ms": 500}, on_error=[{"to": caught}])
            case "approval":
                caught = self.node()
                return self.node(approval={"timeout_ms": 500}, on_error=[{"to": caught}])
            case _:
                of = "branch.index" if self.scopes else "0"
                return self.node(workflow="child", input={"of": of})

    def block(self, depth: int) -> tuple[str, str]:
        """A piece of graph, by its first and its last node."""
        kinds = ["leaf"]
        if depth and self.room > 3:
            kinds = ["fan_out", "fan_out", "group", "loop", "choice", "split", "maybe_end"]
            kinds += ["maybe_cancel"] * (depth == 1)
            kinds += ["sequence", "sequence"] + ["leaf"] * (depth < 3)
        grow: Callable[[int], tuple[str, str]] = getattr(self, f"_{self.pick(*kinds)}")
        return grow(depth)

    def _leaf(self, _depth: int) -> tuple[str, str]:
        name = self.leaf()
        return name, name

    def _sequence(self, depth: int) -> tuple[str, str]:
        first, middle = self.block(depth - 1 if depth else 0)
        after, last = self.block(depth - 1 if depth else 0) if self.room > 0 else (None, middle)
        if after is not None:
            self.link(middle, after)
        return first, last

    def _loop(self, depth: int) -> tuple[str, str]:
        first, last = self.block(depth - 1)
        out = self.node()
        self.link(last, first, priority=1, max_iterations=self.pick(1, 2))
        self.link(last, out, priority=2)
        return first, out

    def _choice(self, depth: int) -> tuple[str, str]:
        first, out = self.node(), self.node()
        parity = "branch.index % 2 == 0" if self.scopes else "input.n % 2 == 0"
        left, right = self.block(depth - 1), self.block(depth - 1)
        self.link(first, left[0], condition=parity)
        self.link(first, right[0], priority=2)
        self.link(left[1], out)
        self.link(right[1], out)
        return first, out

    def _split(self, _depth: int) -> tuple[str, str]:
        """Two tokens in one branch; what follows happens twice."""
        first, out = self.node(), self.node()
        for _ in range(2):
            begin, end = self.block(0)
            self.link(first, begin)
            self.link(end, out)
        return first, out

    def _maybe_end(self, depth: int) -> tuple[str, str]:
        first, last = self.block(depth - 1)
        out = self.node()
        condition = "branch.index != 1" if self.scopes else "input.n < 100"
        self.link(last, out, condition=condition)
        return first, out

    def _maybe_cancel(self, depth: int) -> tuple[str, str]:
        first, last = self.block(depth - 1)
        out = self.node()
        condition = "branch.index == 3" if self.scopes else "input.n > 100"
        self.link(last, self.node(end="cancelled"), condition=condition)
        self.link(last, out, priority=2)
        return first, out

    def _fan_out(self, depth: int) -> tuple[str, str]:
        start, name = self._opening()
        body = self._body(name, depth)
        width = self.pick(3, 2, 4, 3, 2, 1, 0)
        how = self.pick(
            {"foreach": f"input.lists[{width}]"},
            {"foreach": f"input.lists[{width}]", "open": self.pick("until_done", "until_closed")},
            {"spawn_count": width},
            {"spawn_count": f"input.n - input.n + {width}"},
        )
        limit = self.pick({}, {}, {"max_parallel": 1}, {"max_parallel": 2})
        self.link(start, body[0], id=name, **how, **limit)
        return start, self._join(name, [body[1]], width or 1)

    def _group(self, depth: int) -> tuple[str, str]:
        start, name = self._opening()
        ends = []
        for number in range(self.pick(2, 3)):
            begin, end = self._body(name, depth if not number else 0)
            condition = self.pick({}, {}, {"condition": "input.n % 2 == 0"})
            self.link(start, begin, sibling_group=name, **condition)
            ends.append(end)
        return start, self._join(name, ends, len(ends))

    def _opening(self) -> tuple[str, str]:
        self.fan_outs += 1
        return self.node(), f"s{self.fan_outs}"

    def _body(self, name: str, depth: int) -> tuple[str, str]:
        self.scopes.append(name)
        mark = self.node(input={"i": "branch.index"}, output={f"state.{name}": "result.i"})
        first, last = self.block(depth - 1 if depth else 0)
        self.link(mark, first)
        self.scopes.pop()
        return mark, last

    def _join(self, name: str, ends: list[str], most: int) -> str:
        out = self.node()
        merges = [
            {"source": "branch.index", "target": f"state.{name}_arrived", "strategy": "collect"},
            {"source": "branch.error.type", "target": f"state.{name}_failed"},
            {"source": f"state.{name}", "target": f"state.{name}_marks", "strategy": "keyed"},
        ]
        quorum = f"{min(2, most)} + input.n - input.n"
        rule = {
            "joins_transition": name,
            "wait_for": self.pick(
                "all", "all", "any", {"m_of_n": min(2, most)}, {"m_of_n": quorum}
            ),
            "late": self.pick("cancel", "absorb"),
            "on_branch_failure": self.pick("fail", "continue", "continue"),
            "merge": merges,
            **self.pick(
                {},
                {},
                {"timeout_ms": 20, "on_timeout": "proceed"},
                {"timeout_ms": 200, "on_timeout": "fail"},
            ),
            **self.pick({}, {}, {"complete_on": {"signal": "enough"}}),
        }
        for end in ends:
            self.link(end, out, synchronization=rule)
        return out


@st.composite
def definitions(draw: Any) -> Definition:
    growth = Growth(draw)
    first, last = growth.block(3)
    if growth.room > 0:
        growth.link(last, growth.task())
    document = {
        "name": "grown",
        "initial_node": first,
        "nodes": growth.nodes,
        "transitions": growth.transitions,
    }
    return msgspec.convert(document, Definition)
