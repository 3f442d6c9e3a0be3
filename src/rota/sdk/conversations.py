"""How is something asked that takes several questions, by threads and by event loops alike?

As a generator that is written once: it yields a call and is sent its answer, or raised its refusal;
it yields a number of seconds and goes on after them; what it returns is what came of it all.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from rota.errors import RotaError
from rota.sdk.client import Client
from rota.sdk.requests import Call

T = TypeVar("T")

Conversation = Generator[Call[Any] | float, Any, T]


def converse(
    conversation: Conversation[T], client: Client, pause: Callable[[float], object] = time.sleep
) -> T:
    """Have a conversation on this thread."""
    try:
        step = next(conversation)
        while True:
            if isinstance(step, float):
                pause(step)
                step = next(conversation)
                continue
            try:
                answer = client.run(step)
            except RotaError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def aconverse(conversation: Conversation[T], client: Client) -> T:
    """Have a conversation on this event loop."""
    try:
        step = next(conversation)
        while True:
            if isinstance(step, float):
                await asyncio.sleep(step)
                step = next(conversation)
                continue
            try:
                answer = await client.arun(step)
            except RotaError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
