"""A small shop, for `make up` and the dashboard's pictures: it sells, and now and then it fails.

send_mail      quick, in a queue of its own
charge_card    fails every now and then, and sometimes for good: something to look at in Failures
resize_image   takes its time and says how far it is
render_video   needs a worker with a GPU, and there is none: it waits, and the dashboard says why
ask_carrier    calls an API that allows two calls a second: a rate
pack_parcel    one parcel at a time for each customer: a concurrency limit
print_label    two branches share one printer, and north gets three labels for each of south
count_stock    every fifteen seconds, by a schedule
close_books    every night at three, by the clock in Berlin
take_back      a durable function: a parcel comes back, is looked at, and its price is paid back
"""

import asyncio
import random

from msgspec import Struct

from rota import Concurrency, Discard, Rate, Rota, Run, current

app = Rota()

STEPS = 6
STEP_S = 0.4
TRIES_AGAIN_ONE_IN = 4
FAILS_FOR_GOOD_ONE_IN = 12
LABELS = "labels"  # the queue that the branches share
LABEL_WEIGHTS = {"north": 3, "south": 1}
LARGE_REFUND_CENTS = 3_000  # from here on a person says yes
CENTS_PER_ITEM = 800
ASKS_FOR_MS = 600_000


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
    log = current().log
    log.info("asking the bank for %.2f", cents / 100, extra={"order": order})
    await asyncio.sleep(random.uniform(0.1, 0.6))
    if random.randrange(FAILS_FOR_GOOD_ONE_IN) == 0:
        log.error("the card has expired")
        raise Discard(f"card of order {order} has expired")
    if random.randrange(TRIES_AGAIN_ONE_IN) == 0:
        log.warning("the bank refused attempt %d", current().attempt)
        raise CardDeclinedError(f"the bank refused {cents / 100:.2f} for order {order}")
    return {"order": order, "charged_cents": cents}


@app.task(queue="images", timeout_ms=60_000)
async def resize_image(name: str, width: int = 1_200) -> dict[str, str | int]:
    context = current()
    for step in range(STEPS):
        await asyncio.sleep(STEP_S * random.uniform(0.5, 1.5))
        context.log.info("step %d of %d", step + 1, STEPS)
        await context.aprogress((step + 1) / STEPS)
    return {"image": name, "width": width}


@app.task(queue="images", requires=["gpu"])
async def render_video(name: str) -> str:
    return f"{name}.mp4"


@app.task(queue="shipping", rate=Rate("carrier-api", limit=2, per_ms=1_000))
async def ask_carrier(order: int) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0.05, 0.15))
    return {"order": order, "days": random.randrange(1, 5)}


@app.task(queue="shipping", concurrency=Concurrency("customer:{customer}", limit=1))
async def pack_parcel(customer: str, order: int) -> dict[str, str | int]:
    await asyncio.sleep(random.uniform(1.0, 3.0))
    return {"customer": customer, "order": order}


@app.task(queue=LABELS, fair_key="{branch}")
async def print_label(branch: str, order: int) -> dict[str, str | int]:
    await asyncio.sleep(random.uniform(0.3, 0.5))
    return {"branch": branch, "order": order}


@app.schedule(every_ms=15_000)
@app.task
async def count_stock() -> int:
    await asyncio.sleep(random.uniform(0.2, 1.0))
    return random.randrange(100, 1_000)


@app.schedule("0 3 * * *", timezone="Europe/Berlin", missed="last", pause_on_failure=3)
@app.task(queue="payments")
async def close_books() -> str:
    await asyncio.sleep(1.0)
    return "closed"


# --- a durable function ---------------------------------------------------------------------------


class Refund(Struct):
    """What the person fills in who approves a large refund."""

    cents: int
    note: str = ""


async def look_at(item: str) -> int:
    await asyncio.sleep(random.uniform(0.2, 0.6))
    if random.randrange(TRIES_AGAIN_ONE_IN) == 0:
        raise ConnectionError(f"the scales do not answer for {item}")
    return CENTS_PER_ITEM


async def pay_back(order: int, cents: int) -> str:
    await asyncio.sleep(random.uniform(0.1, 0.3))
    return f"{cents / 100:.2f} paid back for order {order}"


async def look_at_all(ctx: Run, goods: list[str]) -> int:
    careful = ctx.using(max_attempts=10, backoff={"initial_ms": 200, "max_ms": 800})
    return sum([await careful.step(look_at, item) for item in goods])


@app.workflow
async def take_back(ctx: Run, order: int, goods: list[str]) -> str:
    """A parcel comes back: its goods are looked at, and their price is paid back."""
    ctx.publish("status", "travelling")
    await ctx.sleep(seconds=3)
    ctx.publish("status", "here")
    cents, _ = await ctx.gather(
        look_at_all(ctx, goods), ctx.call(send_mail, "ada@example.org", "Your parcel is here")
    )
    if cents >= LARGE_REFUND_CENTS:
        question = f"Pay {cents / 100:.2f} back for order {order}?"
        refund = await ctx.using(timeout_ms=ASKS_FOR_MS).approval(question, form=Refund)
        cents = refund.cents
    return await ctx.step(pay_back, order, cents)
