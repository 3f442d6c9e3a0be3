"""Definitions with a fan-out and its join."""

from typing import Any


def fan(
    rule: str = "", fan_out: str = "foreach: input.items", merge: str = "", more: str = ""
) -> str:
    merges = merge or "{target: output.got, strategy: collect}"
    return f"""
name: fan
initial_node: start
nodes:
  start: {{}}
  work: {{task: work, input: {{item: branch.item}}}}
  after: {{task: after}}
transitions:
  - {{id: fan, from: start, to: work, {fan_out}}}
  - {{from: work, to: after, synchronization: {{joins_transition: fan, merge: {merges}{rule}}}}}
{more}
"""


def items(*values: Any) -> dict[str, Any]:
    return {"items": list(values)}


ECHO = {"work": lambda payload: payload["item"], "after": lambda _: None}
