"""The short form of `make fuzz`: a few hundred half-valid inputs from fixed seeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.campaign import AT_ONCE, FUZZERS, Campaign
from tests.fuzz.target import Target

pytestmark = pytest.mark.slow

SHOTS = 8 * AT_ONCE


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("fuzz")) as running:
        yield running


@pytest.mark.parametrize("transport", FUZZERS)
def test_half_valid_input_is_never_our_mistake(
    target: Target, tmp_path: Path, transport: str
) -> None:
    campaign = Campaign(target, seed=1, folder=tmp_path)

    assert campaign.run(transport, shots=SHOTS) == SHOTS

    assert campaign.findings == {}
