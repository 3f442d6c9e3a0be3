"""The pytest plugin, as another project's tests see it."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SHOP = """
from rota import Rota

app = Rota()

@app.task
def ship(order: int) -> str:
    return f"shipped {order}"
"""

TESTS = """
from shop import ship

def test_shipping(rota):
    ship.enqueue(7)
    rota.assert_enqueued(ship, args={"order": 7})
    assert rota.drain().results("ship") == ["shipped 7"]

def test_nothing_is_left_from_other_tests(rota):
    rota.refute_enqueued(ship)

async def test_async(rota):
    handle = await ship.aenqueue(8)
    await rota.adrain()
    assert await handle.aresult() == "shipped 8"
"""

LIGHT = ("-p", "no:schemathesis")  # a plugin of ours that takes seconds to load; others have none


@pytest.mark.slow
def test_the_fixture_attaches_the_apps_of_the_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=TESTS)
    pytester.makeini("[pytest]\nrota_apps = shop:app\nasyncio_mode = auto\npythonpath = .\n")

    result = pytester.runpytest_subprocess(*LIGHT)

    result.assert_outcomes(passed=3)
    assert not list(Path(pytester.path).glob("*.db"))


@pytest.mark.slow
def test_an_app_that_cannot_be_imported_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(rota): ...")
    pytester.makeini("[pytest]\nrota_apps = nowhere:app\n")

    result = pytester.runpytest_subprocess(*LIGHT)

    result.stdout.fnmatch_lines(["*rota_apps: 'nowhere:app' cannot be imported*"])


def test_loading_the_plugin_loads_little_else(pytester: pytest.Pytester) -> None:
    script = pytester.makepyfile(
        "import sys, rota.testing.plugin\n"
        "assert 'rota.node' not in sys.modules and 'rota.sdk.app.app' not in sys.modules\n"
    )

    assert pytester.runpython(script).ret == 0
