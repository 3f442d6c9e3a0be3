"""Durable agents of Pydantic AI: their model requests and tool calls are steps of a function.

    agent = Agent("openai:gpt-5", name="support", capabilities=[RotaDurability()])

    @app.workflow
    async def answer(ctx: Run, question: str) -> str:
        return (await agent.run(question)).output

Inside a function, each model request and each tool call is a recorded step: a worker that dies in
the middle costs no second request. Outside of one, the agent runs as always. Tools of one answer
run one after the other, so that a replay meets them in the same order.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model

from rota.errors import Invalid
from rota.sdk.functions.context import current_run
from rota.sdk.functions.operations import OperationOptions

Deps = TypeVar("Deps")


def _unencodable(error: Exception) -> Invalid:
    return Invalid(f"a result of the agent cannot be stored as JSON: {error}")


class StepBackend(JournalCallableOperationBackend[OperationOptions]):
    """Runs the operations of an agent as steps of the function around it."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,  # noqa: ARG002 - the name says it
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],  # noqa: ARG002 - the path of a step is its identity
        config: OperationOptions,
    ) -> object:
        run = current_run()
        if run is None:
            return await body()
        options: OperationOptions = {**config, "name": _step_name(name)}
        return await run.using(**options).step(_called(body))


def _called(body: Callable[[], Awaitable[object]]) -> Callable[[], Any]:
    """The body as a coroutine function, which a step runs on the event loop."""

    async def call() -> object:
        return await body()

    return call


def _step_name(name: str) -> str:
    """The name of an operation without the characters that are part of paths."""
    for part in "/#[]":
        name = name.replace(part, "_")
    return name


@dataclass(init=False, kw_only=True)
class RotaDurability(BaseDurabilityCapability[Deps]):
    """Makes an agent durable inside the functions of an app.

    `model_step` and `tool_step` are options of the steps, such as `max_attempts` and `timeout_ms`.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Rota",
        durable_unit_noun="step",
        durable_container_noun="function",
        codec=JSON_CODEC,
        serialization_failure=_unencodable,
        sequential_tools_in_durable_context=True,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[Deps] | None = None,
        model_step: OperationOptions | None = None,
        tool_step: OperationOptions | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_step: OperationOptions = model_step or {}
        self._tool_step: OperationOptions = tool_step or {}

    @property
    def in_durable_context(self) -> bool:
        return current_run() is not None

    def get_default_run_id(self) -> str | None:
        run = current_run()
        return None if run is None else str(run.uuid())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:  # noqa: ARG002
        run = current_run()
        return None if run is None else run.now()

    def get_durable_operation_backend(self) -> DurableOperationBackend[OperationOptions]:
        config: RoleBasedOperationConfig[OperationOptions] = RoleBasedOperationConfig(
            model=self._model_step, event={}, capability={}, tool=self._tool_step
        )
        return StepBackend(
            agent_name=self.name, default_model_id=self.default_model_id, config=config
        )
