"""A shop that lives: workers, tasks, limits, schedules, runs, and members that share shards.

Used by `make up` and by the script that takes the dashboard's pictures. Everything here is a client
of a coordinator that is up already.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from rota.errors import IllegalState, NothingToApprove

ROOT = Path(__file__).resolve().parent.parent
ROTA = Path(sys.executable).with_name("rota")
ROUND_S = 1.0
STOP_S = 20.0
LOG_LEVEL = "error"  # of the workers: there is always a task that begins or ends
ORDER_EVERY = 6  # rounds
LARGE_ORDER_EVERY = 36  # waits for a yes, which comes a while later
APPROVED_AFTER = 30
DOCUMENTS_EVERY = 25
RETURN_EVERY, LARGE_RETURN_EVERY = 15, 45  # of parcels; a large refund waits for a yes, too
VISIT_EVERY, VISIT_ROUNDS = 60, 35  # a third consumer comes, and goes again: shards move
GOODS = ("tea", "cups", "pot", "honey", "scones", "lemon", "tray", "spoons", "jam", "cloth")
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay")
LABELS = 12  # that each branch always has waiting, so that the weights decide
DOCUMENTS = ["invoices", "flaky letters", "returns", "missing page", "reviews"]


class Answer(NamedTuple):
    """What a person says to a run that asks."""

    run: Any
    signal: str
    payload: Any


Waiting = dict[int, list[Answer]]  # the answers of each round


class Shop:
    """The processes of the shop, and what happens in it round by round."""

    def __init__(self, url: str, log: IO[bytes] | None = None) -> None:
        """Log: where the processes write theirs; None: to the terminal."""
        self._url = url
        self._log = log
        self._stop = threading.Event()
        self._living: list[subprocess.Popen[bytes]] = []
        self._visitor: subprocess.Popen[bytes] | None = None
        self._feeding = threading.Thread(target=self._feed, daemon=True)

    def open(self) -> None:
        for number, app in enumerate(("examples.shop:app", "examples.workflows.tasks:app"), 1):
            name = ("shop", "flows")[number - 1]
            command = [str(ROTA), "worker", app, "--url", self._url, "--worker-id", f"{name}-1"]
            self._living.append(self._start([*command, "--log-level", LOG_LEVEL]))
        self._living += [self._consumer() for _ in range(2)]
        self._feeding.start()

    def has_lost_process(self) -> bool:
        return any(process.poll() is not None for process in self._living)

    def close(self) -> None:
        """End everything; the workers hand back what they hold."""
        self._stop.set()
        self._feeding.join(STOP_S)
        processes = [*self._living, *([self._visitor] if self._visitor else [])]
        for process in processes:
            self._end(process)
        for process in processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"ROTA_URL": self._url, "ROTA_EXAMPLE_PAUSE_S": "1.2"}
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )

    def _consumer(self) -> "subprocess.Popen[bytes]":
        return self._start([sys.executable, "examples/sharded_consumer.py"])

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)

    # --- rounds ---------------------------------------------------------------------------------

    def _feed(self) -> None:
        sys.path.insert(0, str(ROOT))
        os.environ["ROTA_URL"] = self._url
        from examples import shop  # noqa: PLC0415 - the address must be set before
        from examples.workflows.tasks import app as flows  # noqa: PLC0415

        workflows = {
            name: flows.workflow(ROOT / "examples" / "workflows" / f"{name}.yaml")
            for name in ("order", "document_pipeline")
        }
        waiting: Waiting = {}  # by the round in which a person gives them
        for number in itertools.count():
            if self._stop.is_set():
                return
            try:
                if number == 0:
                    self._share_the_printer(shop)
                self._sell(shop, number)
                self._ship(shop, number)
                self._order(workflows, waiting, number)
                self._take_back(shop, waiting, number)
                self._answer(waiting.pop(number, ()))
                self._visit(number)
            except Exception as error:  # noqa: BLE001 - shown, and tried again in the next round
                print(f"  round {number}: {error}", flush=True)
            self._stop.wait(ROUND_S)

    def _sell(self, shop: Any, number: int) -> None:
        shop.charge_card.enqueue(order=1_000 + number, cents=random.randrange(500, 40_000))
        for name in random.sample(NAMES, 2):
            shop.send_mail.enqueue(f"{name}@example.org")
        if number % 3 == 0:
            shop.resize_image.enqueue(f"{random.choice(GOODS)}-{number}.jpg")
        if number == 0:
            # A key of their own, so that there are two of them however often this is started.
            for name in ("opening", "tour"):
                shop.render_video.using(key=f"video {name}").enqueue(name)

    def _share_the_printer(self, shop: Any) -> None:
        """One label at a time, by the weights of the branches."""
        settings = {"max_running": 1, "weights": shop.LABEL_WEIGHTS}
        self._ask("PATCH", f"/api/queues/{shop.LABELS}", settings)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=STOP_S) as answer:
            return json.load(answer)

    def _ship(self, shop: Any, number: int) -> None:
        for _ in range(random.randrange(4)):
            shop.ask_carrier.enqueue(1_000 + number)
        shop.pack_parcel.enqueue(random.choice(NAMES[:3]), 1_000 + number)
        tenants = self._ask("GET", f"/api/queues/{shop.LABELS}/tenants")["items"]
        waiting = {one["key"]: one["waiting"] for one in tenants}
        for branch in shop.LABEL_WEIGHTS:
            for order in range(LABELS - waiting.get(branch, 0)):
                shop.print_label.enqueue(branch, 100 * number + order)

    def _order(self, workflows: Any, waiting: Waiting, number: int) -> None:
        order, lines = workflows["order"], random.sample(GOODS, random.randrange(2, 9))
        if number % LARGE_ORDER_EVERY == 3:
            run = order.start({"number": 5_000 + number, "lines": lines, "cents": 75_000})
            answer = Answer(run, "approve", {"approved": True})
            waiting.setdefault(number + APPROVED_AFTER, []).append(answer)
        elif number % ORDER_EVERY == 0:
            card = "refused" if number % (5 * ORDER_EVERY) == 2 * ORDER_EVERY else "good"
            order.start({"number": 1_000 + number, "lines": lines, "card": card})
        if number % DOCUMENTS_EVERY == 1:
            workflows["document_pipeline"].start({"documents": DOCUMENTS})

    def _take_back(self, shop: Any, waiting: Waiting, number: int) -> None:
        """Parcels come back, to a durable function."""
        if number % LARGE_RETURN_EVERY == RETURN_EVERY:
            run = shop.take_back.start(1_000 + number, random.sample(GOODS, 5))
            answer = Answer(run, "approval", {"approved": True, "cents": 3_500, "note": "a gift"})
            waiting.setdefault(number + APPROVED_AFTER, []).append(answer)
        elif number % RETURN_EVERY == 0:
            shop.take_back.start(1_000 + number, random.sample(GOODS, 2))

    @staticmethod
    def _answer(answers: Iterable[Answer]) -> None:
        for run, name, payload in answers:
            # A person may have answered on the dashboard before, or the run has ended.
            with contextlib.suppress(IllegalState, NothingToApprove):
                run.signal(name, payload)

    def _visit(self, number: int) -> None:
        moment = number % VISIT_EVERY
        if moment == VISIT_EVERY - VISIT_ROUNDS and self._visitor is None:
            self._visitor = self._consumer()
        elif moment == 0 and self._visitor is not None:
            self._end(self._visitor)
            self._visitor.wait(STOP_S)
            self._visitor = None
