"""What a browser fetches: a handful of packets once, and nothing of it again."""

from typing import Any

import pytest

from tests.dashboard.browsing import Visit, heading, settled, visiting
from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

pytestmark = pytest.mark.slow

MOST_BYTES = 80_000  # of a first load, as it travels; headers of all files included


class Traffic:
    """What came over the wire for files of ours."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}  # by request, of those that the browser had to send
        self.sizes: dict[str, int] = {}

    async def watch(self, visit: Visit) -> None:
        session = await visit.page.context.new_cdp_session(visit.page)
        session.on("Network.responseReceived", self._note)
        session.on("Network.dataReceived", self._measure)
        await session.send("Network.enable")

    def _note(self, event: Any) -> None:
        response = event["response"]
        if "/static/" in response["url"] and not response.get("fromDiskCache"):
            self.addresses[event["requestId"]] = response["url"]

    def _measure(self, event: Any) -> None:
        request = event["requestId"]
        self.sizes[request] = self.sizes.get(request, 0) + int(event["encodedDataLength"])

    def fetched(self) -> list[tuple[str, int]]:
        """Addresses and sizes; what the browser had in its memory has come in no packet."""
        sizes = ((address, self.sizes.get(one, 0)) for one, address in self.addresses.items())
        return [(address, size) for address, size in sizes if size]


async def load(visit: Visit) -> list[tuple[str, int]]:
    traffic = Traffic()
    await traffic.watch(visit)
    page = await visit.open("/tasks")
    await heading(page, "Tasks")
    await settled(page)
    return traffic.fetched()


async def test_a_second_load_fetches_no_file_again(api: Api) -> None:
    async with visiting(api) as visit:
        first = await load(visit)
        await visit.open("/docs")
        second = await load(visit)

    assert 0 < sum(size for _, size in first) <= MOST_BYTES
    assert second == []


async def test_every_file_is_fetched_once_and_under_its_edition(api: Api) -> None:
    async with visiting(api) as visit:
        addresses = [address for address, _ in await load(visit)]

    assert len(addresses) == len(set(addresses)) > 20
    assert len({address.split("/static/")[1].split("/")[0] for address in addresses}) == 1
