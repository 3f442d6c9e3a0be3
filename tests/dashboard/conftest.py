"""Tests of pages run on one event loop, because they share one browser, which belongs to its loop.

To start a browser takes more of a processor than most of these tests do in it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.gateways.serving import Api, served

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    shared = pytest.mark.asyncio(loop_scope="session")
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(shared, append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def shared_browser() -> AsyncIterator[None]:
    try:
        from tests.dashboard import browsing  # noqa: PLC0415 - playwright may not be installed
    except pytest.skip.Exception:
        yield
        return
    async with browsing.share_browser():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path) as running:
        yield running
