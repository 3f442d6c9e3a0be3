"""The durable functions on the pages do what the pages say."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rota.errors import Invalid
from rota.sdk.run import RunFailed
from rota.testing import TestCoordinator
from tests.docs.pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"


class PageModules:
    """Modules made of the Python blocks of pages: a function needs the file of its source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names: list[str] = []

    def load(self, name: str, page: Path, *wanted: int) -> ModuleType:
        shown = blocks(page, "python")
        return self.make(name, "\n\n".join(shown[number].text for number in wanted))

    def make(self, name: str, text: str) -> ModuleType:
        file = self._folder / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        self.names.append(name)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[PageModules]:
    made = PageModules(tmp_path)
    yield made
    for name in made.names:
        sys.modules.pop(name, None)


@pytest.fixture
def rota() -> Iterator[TestCoordinator]:
    with TestCoordinator() as coordinator:
        yield coordinator


def test_the_functions_of_the_page_on_workflows_in_code_run(
    modules: PageModules, rota: TestCoordinator
) -> None:
    page = modules.load("in_code", HOW_TO / "write-a-workflow-in-code.md", 0, 2)
    rota.attach(page.app)

    order, report = page.order.start("4242", ["book"], key="order-17"), page.report.start("monday")
    order.signal("paid", {"by": "ada"})
    rota.drain(until_finished=True)

    assert order.result().total == 10
    assert order.published == {"status": "paid"}
    assert report.result() == len("monday")


def test_the_marker_of_the_page_leads_new_runs_the_new_way(
    modules: PageModules, rota: TestCoordinator
) -> None:
    page = modules.load("changed", HOW_TO / "change-a-running-function.md", 0)
    rota.attach(page.app)

    handle = page.order.start()
    rota.drain()

    assert handle.result() == 2027


def test_the_test_of_the_page_on_testing_functions_passes(modules: PageModules) -> None:
    page = modules.load("tested", HOW_TO / "test-a-function.md", 0, 1)

    page.test_an_order_that_nobody_pays_is_late()


def test_the_function_of_the_page_on_undoing_gives_back_what_it_took(
    modules: PageModules, rota: TestCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    page = modules.load("undoing", HOW_TO / "undo-steps.md", 0, 1)
    rota.attach(page.app)

    failing = page.buy.start("4242", ["tea", "unicorn"])
    other = page.buy_one_of.start("unicorn", "tea")
    rota.drain(until_finished=True)

    with pytest.raises(RunFailed, match="LookupError"):
        failing.result()
    printed = capsys.readouterr().out.splitlines()
    undos = [line for line in printed if line.startswith(("release ", "refund "))]
    assert undos == ["release tea reserved", "refund charge of 20"]
    assert other.result() == "tea reserved"


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"approved": True, "percent": 10}, "10 % for ada"),
        ({"approved": False}, "no discount: {'approved': False}"),
        (None, "no answer within a day"),
    ],
)
def test_the_approval_of_the_page_ends_with_a_yes_a_no_or_the_day(
    modules: PageModules, rota: TestCoordinator, answer: Any, output: str
) -> None:
    page = modules.load("people", HOW_TO / "wait-for-people.md", 0)
    rota.attach(page.app)

    handle = page.quote.start("ada")
    rota.drain()
    if answer is not None:
        with pytest.raises(Invalid, match="percent"):
            handle.signal("approval", {"approved": True})
        handle.signal("approval", answer)
    rota.drain(until_finished=True)

    assert handle.result() == output


def test_the_events_of_the_page_have_an_end(modules: PageModules, rota: TestCoordinator) -> None:
    page = modules.load("events", HOW_TO / "wait-for-people.md", 0, 1, 2)
    rota.attach(page.app)

    paid, withdrawn = page.invoice.start(1), page.reservation.start()
    paid.signal("paid", {"cents": 990})
    withdrawn.signal("withdrawn")
    rota.drain()
    assert [paid.result(), withdrawn.result()] == ["990 cents", "withdrawn"]

    unpaid = page.invoice.start(2)
    rota.drain(until_finished=True)
    assert unpaid.result() == "to the lawyers"


def test_the_basket_of_the_page_answers_each_change(
    modules: PageModules, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [block.text for block in blocks(HOW_TO / "wait-for-people.md", "python")]
    page = modules.make("basket_page", (shown[0] + shown[3]).replace("Rota()", 'Rota("sqlite://")'))

    with page.app:
        exec(shown[4], vars(page))

    printed = [line for line in capsys.readouterr().out.splitlines() if line.isdigit()]
    assert printed == ["1", "1"]


@pytest.mark.parametrize(
    ("name", "arguments", "signal"),
    [("dbos", ("4242", 990), {"tracking": "T1"}), ("temporal", (990,), "T1")],
)
def test_the_migrated_order_ships_or_is_refunded(
    modules: PageModules, rota: TestCoordinator, name: str, arguments: Any, signal: Any
) -> None:
    page = modules.load(f"from_{name}", HOW_TO / f"migrate-from-{name}.md", 1)
    rota.attach(page.app)

    shipped, late = page.order.start(*arguments), page.order.start(*arguments)
    shipped.signal("shipped", signal)
    rota.drain(until_finished=True)

    assert [shipped.result(), late.result()] == ["T1", "refunded"]


def test_the_functions_of_the_tutorial_run(
    modules: PageModules, rota: TestCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = "import time\n\nimport rota\nfrom msgspec import Struct\n"
    shop = [block.text for block in blocks(ROOT / "docs" / "tutorial.md", "python")]
    orders = [block.text for block in blocks(ROOT / "docs" / "tutorial-functions.md", "python")]
    modules.make("shop", "\n\n".join([imports, shop[0], shop[2], shop[4]]))
    page = modules.make("orders", "\n\n".join([imports, *orders[:4]]))
    monkeypatch.setattr("time.sleep", lambda _: None)
    rota.attach(page.app)

    sold, packed = page.sell.start(["tea", "cups"]), page.pack_all.start(["tea"])
    delivered, shipped = page.deliver.start(["tea"]), page.ship.start(17)
    delivered.signal("paid", {"by": "ada"})
    rota.drain()
    shipped.signal("approval", {"approved": True, "carrier": "post"})
    rota.drain(until_finished=True)

    assert sold.result() == "payment of 20"
    assert packed.result() == ["tea packed"]
    assert delivered.result() == "sent to ada"
    assert shipped.result() == "order 17 goes with post"
    modules.make("test_orders", orders[4]).test_an_order_that_is_not_paid_is_late()
