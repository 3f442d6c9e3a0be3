"""The one command that takes pictures of every page does so."""

import asyncio
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.browsing import HAS_CHROMIUM
from tests.gateways.serving import Api
from tests.gateways.working import Bench

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "pictures.py"
KEPT = ROOT / "docs" / "pictures"
MOST_KEPT_BYTES = 1_500_000
ORDER = """
name: order
initial_node: reserve
nodes:
  reserve: {task: reserve}
"""


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    content = picture.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def pictures_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: size_of(path) for path in folder.glob("*.png")}


async def shop(api: Api) -> None:
    """What the script looks for, as the shop of `make up` would have it."""
    bench = await Bench.at(api)
    await bench.carry_out(ORDER, {}, {"reserve": lambda _: None})
    worker = await api.register("shop-1")
    await api.submit(name="charge_card", queue="payments", max_attempts=1)
    (lease,) = await worker.lease()
    await worker.fail(lease, {"type": "CardDeclined", "message": "the bank says no"})
    await api.submit(name="render_video", queue="images", requires=["gpu"])
    await api.post("/api/services/orders/members", {"workerId": "a", "maxShardCount": 8})


async def test_every_page_is_pictured_light_and_dark_wide_and_narrow(
    api: Api, tmp_path: Path
) -> None:
    if not HAS_CHROMIUM:
        pytest.skip("there is no browser")
    await shop(api)
    url = str(api.client.base_url).rstrip("/")
    names = ["overview", "task_waiting", "run", "service"]

    command = [sys.executable, str(SCRIPT), "--url", url, "--folder", str(tmp_path), *names]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    _, errors = await process.communicate()

    assert process.returncode == 0, errors.decode()
    found = pictures_in(tmp_path)
    assert set(found) == {
        f"{name}-{theme}-{width}.png"
        for name in names
        for theme in ("light", "dark")
        for width in ("wide", "narrow")
    }
    assert {size[0] for name, size in found.items() if "wide" in name} == {1_400}
    assert {size[0] for name, size in found.items() if "narrow" in name} == {400}


def test_the_pictures_that_are_kept_are_few_small_and_shown() -> None:
    kept = sorted(KEPT.glob("*.png"))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "".join(page.read_text() for page in pages)

    assert sum(picture.stat().st_size for picture in kept) <= MOST_KEPT_BYTES
    assert [picture.name for picture in kept if f"pictures/{picture.name}" not in shown] == []
