"""A durable agent: its model requests and tool calls are steps that are not made twice.

Runs as it is, without a model service: `python examples/agent.py`. With one, replace the model:
`Agent("openai:gpt-5", …)`. It needs the extra: `pip install 'rota[pydantic-ai]'`.
"""

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from rota import Rota, Run
from rota.contrib.pydantic_ai import RotaDurability

app = Rota("sqlite:///agent.db")
agent = Agent(
    TestModel(), name="support", capabilities=[RotaDurability(model_step={"max_attempts": 5})]
)


@agent.tool_plain
def orders_of(customer: str) -> list[str]:
    """The orders of a customer."""
    return [f"{customer}: one teapot"]


@app.workflow
async def answer(ctx: Run, question: str) -> str:
    reply = (await agent.run(question)).output
    ctx.publish("draft", reply)
    return reply


def main() -> None:
    with app:
        print(answer.start("Where is my teapot?").result(timeout=60))


if __name__ == "__main__":
    main()
