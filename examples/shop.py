"""A small shop, for `make up` and the dashboard's pictures: it sells, and now and then it fails.

send_mail      quick, in a queue of its own
charge_card    fails every now and then, and sometimes for good: something to look at in Failures
resize_image   takes its time and says how far it is
render_video   wants a worker with a GPU, which nobody has: it waits, and the dashboard says why
"""

import asyncio
import random

from rota import Discard, Rota, current

app = Rota()

STEPS = 6
STEP_S = 0.4
TRIES_AGAIN_ONE_IN = 4
FAILS_FOR_GOOD_ONE_IN = 12


class CardDeclinedError(Exception):
    """The bank says no."""


@app.task(queue="mail")
async def send_mail(address: str, subject: str = "Your order") -> dict[str, str]:
    await asyncio.sleep(random.uniform(0.02, 0.2))
    return {"sent_to": address, "subject": subject}


@app.task(
    queue="payments",
    max_attempts=3,
    backoff={"kind": "exponential", "initial_ms": 800, "max_ms": 5_000},
)
async def charge_card(order: int, cents: int) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0.1, 0.6))
    if random.randrange(FAILS_FOR_GOOD_ONE_IN) == 0:
        raise Discard(f"card of order {order} has expired")
    if random.randrange(TRIES_AGAIN_ONE_IN) == 0:
        raise CardDeclinedError(f"the bank refused {cents / 100:.2f} for order {order}")
    return {"order": order, "charged_cents": cents}


@app.task(queue="images", timeout_ms=60_000)
async def resize_image(name: str, width: int = 1_200) -> dict[str, str | int]:
    context = current()
    for step in range(STEPS):
        await asyncio.sleep(STEP_S * random.uniform(0.5, 1.5))
        await context.aprogress((step + 1) / STEPS)
    return {"image": name, "width": width}


@app.task(queue="images", requires=["gpu"])
async def render_video(name: str) -> str:
    return f"{name}.mp4"
