"""Drives sans-I/O exchanges: `drive` on a thread, `adrive` on an event loop.

An exchange is a generator, so it is written once for both. It yields a step and receives what
performing that step returned, or has its `RotaError` raised at the `yield`. A `float` is a pause in
seconds. The return value of the generator is the result of the exchange.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from rota.errors import RotaError

T = TypeVar("T")


def drive(
    exchange: Generator[Any, Any, T],
    perform: Callable[[Any], Any],
    pause: Callable[[float], object] = time.sleep,
) -> T:
    try:
        step = next(exchange)
        while True:
            if isinstance(step, float):
                pause(step)
                step = next(exchange)
                continue
            try:
                answer = perform(step)
            except RotaError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(exchange: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    try:
        step = next(exchange)
        while True:
            if isinstance(step, float):
                await asyncio.sleep(step)
                step = next(exchange)
                continue
            try:
                answer = await perform(step)
            except RotaError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
