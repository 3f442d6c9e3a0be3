"""Workflows as a program defines and starts them.

    flow = app.workflow("panel", output={"winner": "output.winner"})
    ask = flow.node("ask", task=ask_task, input={"question": "input.question"})
    judge = flow.node("judge", task=judge_task, input={"by": "branch.item"})
    tally = flow.node("tally", task=tally_task, input={"verdicts": "state.verdicts"})
    panel = flow.transition(ask, judge, foreach="input.judges", id="panel")
    flow.join(judge, tally, of=panel, merge={"source": "branch.output", "target": "state.verdicts"})

    run = flow.start({"question": "To be?", "judges": ["a", "b", "c"]})
    print(run.result())

The result is the definition that the same YAML gives, and `yaml` writes it. A text in `input`,
`output`, `condition` and the like is an expression (CEL); any other value is taken as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypedDict, Unpack

import msgspec

from rota.core.flows.model import Concurrency, Rate
from rota.core.workflow.commands import Publishing
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    NodeDefinition,
    Synchronization,
)
from rota.core.workflow.definition.parser import convert
from rota.core.workflow.definition.readings import warnings_of
from rota.errors import Invalid
from rota.messages import RunRequest, RunView, WorkflowView
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange
from rota.sdk.definitions import invalid, yaml_of
from rota.sdk.encoding import encode
from rota.sdk.middleware.chain import starting
from rota.sdk.options.durations import Duration, in_milliseconds, optional_milliseconds
from rota.sdk.run import RunHandle
from rota.sdk.task import App, Task

Schema = Mapping[str, Any] | bool
Expressions = Mapping[str, Any]


class WorkflowOptions(TypedDict, total=False):
    """The options of a workflow as a whole."""

    description: str
    input: Schema  # JSON Schema of its input
    state: Schema
    output: Expressions  # the output of a run
    output_schema: Schema
    initial_node: str  # by default the first node
    on_no_route: Literal["end", "fail"]
    timeout_ms: int
    timeout: Duration  # here and below: as the option with `_ms`, such as "5m" or a timedelta
    max_depth: int


class NodeOptions(TypedDict, total=False):
    """The options of a node; at most one of the first seven is the action of the node."""

    task: Task[..., Any] | str
    workflow: "Workflow | str"
    wait_for: Mapping[str, Any] | str  # a signal's name, or a mapping with `timeout_ms`
    approval: Mapping[str, Any] | bool
    signal: Mapping[str, Any] | str  # a signal's name, for its own run, or a mapping
    sleep_ms: int
    sleep: Duration
    end: Literal["completed", "failed", "cancelled"]
    input: Expressions
    output: Expressions  # "state.a" or "output.b" -> expression over `result`
    output_schema: Schema
    requires: Sequence[str]
    queue: str
    priority: int
    retry: Mapping[str, Any]
    timeout_ms: int
    timeout: Duration
    on_error: Sequence[Mapping[str, Any]]
    compensate: Task[..., Any] | str
    concurrency: Concurrency | Mapping[str, Any] | Sequence[Concurrency | Mapping[str, Any]]
    rate: Rate | Mapping[str, Any] | Sequence[Rate | Mapping[str, Any]]
    fair_key: str


class TransitionOptions(TypedDict, total=False):
    """When a transition is taken, and how many tokens it creates."""

    id: str
    priority: int  # lower first; all matching transitions of the first tier are taken
    condition: str
    spawn_count: int | str
    foreach: str
    sibling_group: str
    max_parallel: int
    open: Literal["until_done", "until_closed"]  # the scope takes further branches
    max_iterations: int


class JoinOptions(TypedDict, total=False):
    """How branches are joined."""

    # A number, or a mapping with an expression as `m_of_n`: so many branches.
    wait_for: Literal["any", "all"] | int | Mapping[str, Any]
    merge: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    timeout_ms: int
    timeout: Duration
    on_timeout: Literal["fail", "proceed"]
    late: Literal["cancel", "absorb"]
    on_branch_failure: Literal["fail", "continue"]
    complete_on: Mapping[str, Any] | str  # a signal's name: fires with what has arrived


class Workflow:
    """A workflow that the program builds, or names and the coordinator has."""

    def __init__(self, app: App, document: Mapping[str, Any]) -> None:
        self._app = app
        written = in_milliseconds(document, Definition.__struct_fields__)
        self._document: dict[str, Any] = {"nodes": {}, "transitions": [], **written}
        self._definition: Definition | None = None
        self._deployed: tuple[Client, Definition, WorkflowView] | None = None

    @classmethod
    def of(cls, app: App, definition: Definition) -> Self:
        return cls(app, msgspec.to_builtins(definition))

    def __repr__(self) -> str:
        return f"<Workflow {self.name}>"

    @property
    def name(self) -> str:
        return str(self._document["name"])

    @property
    def is_built(self) -> bool:
        """Whether the program defines it; otherwise the coordinator has it under its name."""
        return bool(self._document["nodes"])

    # --- building -----------------------------------------------------------------------------

    def node(self, node_id: str, **options: Unpack[NodeOptions]) -> str:
        """Add a node and return its id. Runs begin at the first one.

        A `Task` brings its own queue, capabilities, attempts and time limit along; options of the
        node take precedence.
        """
        if node_id in self._document["nodes"]:
            raise Invalid(f"workflow {self.name!r} has a node {node_id!r} already", node=node_id)
        written = in_milliseconds(options, NodeDefinition.__struct_fields__)
        given = {name: _plain(value) for name, value in written.items()}
        if isinstance(given.get("wait_for"), str):
            given["wait_for"] = {"event": given["wait_for"]}
        if isinstance(given.get("signal"), str):
            given["signal"] = {"name": given["signal"]}
        task = options.get("task")
        if isinstance(task, Task):
            given = {**task.node_options, **given}
        self._document["nodes"][node_id] = given
        self._document.setdefault("initial_node", node_id)
        self._definition = None
        return node_id

    def transition(self, from_: str, to: str, **options: Unpack[TransitionOptions]) -> str:
        """Let a node follow another; with `foreach` or `spawn_count`, once for each branch.

        Returns the name by which a join refers to those branches: the group or the id, if any.
        """
        self._add({"from": from_, "to": to, **options})
        return options.get("sibling_group") or options.get("id") or ""

    def join(
        self,
        from_: str | Sequence[str],
        to: str,
        *,
        of: str,
        id: str | None = None,  # noqa: A002 - the field's name
        condition: str | None = None,
        priority: int | None = None,
        **rule: Unpack[JoinOptions],
    ) -> None:
        """Let a node follow once when the branches `of` a fan-out have arrived.

        `of` is what `transition` returned for it: its id or its `sibling_group`. Name all nodes
        at which the branches end.
        """
        if not of:
            raise Invalid("a fan-out that is joined needs an id: transition(…, id=…)")
        written = in_milliseconds(rule, Synchronization.__struct_fields__)
        synchronization = {"joins_transition": of, **_plain(written)}
        wanted = synchronization.get("wait_for")
        if isinstance(wanted, int):
            synchronization["wait_for"] = {"m_of_n": wanted}
        if isinstance(synchronization.get("complete_on"), str):
            synchronization["complete_on"] = {"signal": synchronization["complete_on"]}
        more = {"id": id, "condition": condition, "priority": priority}
        for one in [from_] if isinstance(from_, str) else from_:
            transition = {"from": one, "to": to, "synchronization": synchronization}
            given = {name: value for name, value in more.items() if value is not None}
            self._add(transition | given)

    def _add(self, transition: dict[str, Any]) -> None:
        self._document["transitions"].append(transition)
        self._definition = None

    # --- the definition -----------------------------------------------------------------------

    @property
    def definition(self) -> Definition:
        """The immutable value; raises `InvalidWorkflow` when it has problems."""
        if self._definition is None:
            definition, problems = convert(self._document)
            if definition is None or problems:
                raise invalid(problems, f"workflow {self.name!r}")
            self._definition = definition
        return self._definition

    def problems(self) -> list[DefinitionProblem]:
        """The problems of the definition; none when it can be run."""
        return convert(self._document)[1]

    def warnings(self) -> list[DefinitionProblem]:
        """Expressions that probably fail, such as one that reads what no node writes."""
        return warnings_of(self.definition)

    def validate(self) -> None:
        """Raise `InvalidWorkflow`, which lists all problems, if there are any."""
        _ = self.definition

    def yaml(self) -> str:
        return yaml_of(self.definition)

    # --- running ------------------------------------------------------------------------------

    def deploy(self) -> WorkflowView:
        """Store the definition at the coordinator, and make it the current version.

        The same content is the same version.
        """
        return self._app.client.run(self.deploying(publish="always"))

    async def adeploy(self) -> WorkflowView:
        """As `deploy`, for async code."""
        return await self._app.client.arun(self.deploying(publish="always"))

    def start(
        self,
        input: Any = None,  # noqa: A002 - what it is called everywhere
        *,
        key: str | None = None,
        timeout_ms: int | Duration | None = None,
        version: int | None = None,
    ) -> RunHandle:
        """Start a run, and deploy the definition first if necessary.

        Without `input` it is an empty object. A second start with the same `key` returns the
        first run. A workflow without nodes is one that the coordinator has; without `version` its
        current one.
        """
        self._app.start()
        return self._app.client.run(self._start(input, version, key, timeout_ms))

    async def astart(
        self,
        input: Any = None,  # noqa: A002 - as above
        *,
        key: str | None = None,
        timeout_ms: int | Duration | None = None,
        version: int | None = None,
    ) -> RunHandle:
        """As `start`, for async code."""
        self._app.start()
        return await self._app.client.arun(self._start(input, version, key, timeout_ms))

    def deploying(self, *, publish: Publishing = "new") -> Exchange[WorkflowView]:
        """The calls that deploy the definition.

        A program that only starts its runs makes a definition current once, when it is new: an
        older program that still runs must not bring its own back.
        """
        definition, client = self.definition, self._app.client
        view: WorkflowView = yield run_calls.put_workflow(definition, publish=publish)
        self._deployed = (client, definition, view)
        return view

    def _start(
        self,
        run_input: Any,
        version: int | None,
        key: str | None,
        timeout_ms: int | Duration | None,
    ) -> Exchange[RunHandle]:
        if self.is_built:
            version = self._deployed_version() or (yield from self.deploying()).version
        request = RunRequest(
            workflow=self.name,
            version=version,
            input=None if run_input is None else msgspec.Raw(encode(run_input)),
            key=key,
            timeout_ms=optional_milliseconds(timeout_ms, "timeout_ms"),
        )
        view = yield from starting(self._app.middleware, request, _start_run)
        return RunHandle.of(view, lambda: self._app.client)

    def _deployed_version(self) -> int | None:
        """The version that the app's current coordinator has of the current definition."""
        if self._deployed is None:
            return None
        client, definition, view = self._deployed
        is_current = client is self._app.client and definition is self.definition
        return view.version if is_current else None


def _start_run(request: RunRequest) -> Exchange[RunView]:
    view: RunView = yield run_calls.start_run(request)
    return view


def _plain(value: Any) -> Any:
    """A value as a document has it; tasks and workflows become their names."""
    match value:
        case Task() | Workflow():
            return value.name
        case str():
            return str(value)
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return msgspec.to_builtins(value)
