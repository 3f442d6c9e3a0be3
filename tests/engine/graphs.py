# ruff: noqa: E501 - a definition reads best with a line for each node
"""The workflows that the engine's tests run."""

LINE = """
name: line
initial_node: first
nodes:
  first: {task: first, output: {state.first: result}}
  second: {task: second, input: {got: state.first}, output: {output.second: result}}
transitions: [{from: first, to: second}]
"""
FAN = """
name: fan
initial_node: begin
nodes: {begin: {}, work: {task: work, input: {index: branch.index}}, end: {}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: input.count}
  - {from: work, to: end, synchronization: {joins_transition: fan, merge: {target: output.all}}}
"""
ANY = """
name: any
initial_node: begin
nodes: {begin: {}, work: {task: work, input: {index: branch.index}}, end: {task: end}}
transitions:
  - {id: fan, from: begin, to: work, spawn_count: 3}
  - {from: work, to: end, synchronization: {wait_for: any, joins_transition: fan, merge: {target: output.first}}}
"""
CHILD = """
name: child
initial_node: work
nodes: {work: {task: work, output: {output.done: result}}}
"""
PARENT = """
name: parent
initial_node: begin
nodes: {begin: {}, child: {workflow: child}, end: {}}
transitions:
  - {id: children, from: begin, to: child, spawn_count: 3}
  - {from: child, to: end, synchronization: {wait_for: all, joins_transition: children, merge: {source: branch.output.done, target: output.all}}}
"""
ANY_PARENT = PARENT.replace("wait_for: all", "wait_for: any")
FRAGILE = """
name: fragile
initial_node: work
nodes: {work: {task: work, retry: {max_attempts: 1}, output: {output.done: result}}}
"""
NAP = "{name: nap, initial_node: nap, nodes: {nap: {sleep_ms: 1000}}}"
