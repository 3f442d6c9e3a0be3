"""Agents of Pydantic AI inside durable functions: no request and no tool call is made twice."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `pydantic-ai` is not installed")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from rota import Rota, Run
from rota.contrib.pydantic_ai import RotaDurability
from rota.sdk.client import function_calls
from rota.testing import TestCoordinator

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"
QUESTION = "How warm is it in Rome and in Oslo?"


@pytest.fixture
def rota() -> Iterator[TestCoordinator]:
    with TestCoordinator() as coordinator:
        yield coordinator


@pytest.fixture
def app(rota: TestCoordinator) -> Rota:
    app = Rota("http://127.0.0.1:1")
    rota.attach(app)
    return app


class Weather:
    """A model that asks for two cities and then answers, and the tool that it calls."""

    def __init__(self) -> None:
        self.requests = 0
        self.looked_up: list[str] = []

    def model(self) -> FunctionModel:
        return FunctionModel(self._respond)

    def _respond(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.requests += 1
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("Rome 21, Oslo 4")])
        cities = ("Rome", "Oslo")
        return ModelResponse(parts=[ToolCallPart("temperature", {"city": one}) for one in cities])

    def temperature(self, city: str) -> int:
        self.looked_up.append(city)
        return 21 if city == "Rome" else 4


def agent_of(weather: Weather) -> Agent[None, str]:
    agent = Agent(weather.model(), name="weather", capabilities=[RotaDurability()])
    agent.tool_plain(weather.temperature)
    return agent


def test_an_agent_asks_its_model_and_calls_its_tools_once_however_often_its_function_is_replayed(
    rota: TestCoordinator, app: Rota
) -> None:
    weather = Weather()
    agent = agent_of(weather)

    @app.workflow
    async def ask(ctx: Run, question: str) -> str:
        found = await agent.run(question)
        await ctx.sleep(days=1)  # whatever worker goes on replays the agent's steps
        return found.output

    handle = ask.start(QUESTION)
    rota.drain(until_finished=True)

    assert handle.result() == "Rome 21, Oslo 4"
    assert (weather.requests, weather.looked_up) == (2, ["Rome", "Oslo"])


def test_the_steps_of_an_agent_are_in_the_log_of_the_run(rota: TestCoordinator, app: Rota) -> None:
    agent = agent_of(Weather())

    @app.workflow
    async def ask(ctx: Run, question: str) -> str:
        return (await agent.run(question)).output

    handle = ask.start(QUESTION)
    handle.result()

    entries, _ = app.client.run(function_calls.whole_log(handle.id))
    names = [entry.path for entry in entries]
    assert [one for one in names if "model.request" in one] == [
        "weather__model.request#1",
        "weather__model.request#2",
    ]
    assert len([one for one in names if "call_tool" in one]) == 2


async def test_an_agent_outside_of_a_function_runs_as_always() -> None:
    weather = Weather()

    found = await agent_of(weather).run(QUESTION)

    assert found.output == "Rome 21, Oslo 4"
    assert sorted(weather.looked_up) == ["Oslo", "Rome"]  # on threads of their own


def test_the_librarys_own_test_model_runs_in_a_function(rota: TestCoordinator, app: Rota) -> None:
    agent = Agent(
        TestModel(custom_output_text="fine"), name="polite", capabilities=[RotaDurability()]
    )

    @app.workflow
    async def greet(ctx: Run) -> str:
        return (await agent.run("hello")).output

    assert greet.start().result() == "fine"


def test_the_example_runs_as_its_page_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "teapot" in done.stdout
