"""What all tests share: a clock that moves when told, how hard hypothesis looks, and the order."""

import os
import signal

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.certificates import Authority, Certificate

settings.register_profile(
    "ordinary",
    max_examples=int(os.environ.get("ROTA_EXAMPLES", "50")),
    deadline=None,  # the machine may be busy; a slow example is no wrong one
    suppress_health_check=[HealthCheck.too_slow],
    # What is gated must not depend on luck: new examples are looked for at a desk, not at the gate.
    derandomize="CI" in os.environ,
)
settings.load_profile("ordinary")

# A shell starts background jobs with SIGINT ignored, and the processes of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test of many examples may take long on a busy machine. Hypothesis takes the end of its time for
# a failure of the example that was under way, does not see it again, and reports a flaky test.
MANY_EXAMPLES_TIMEOUT_S = 600
SLOW_TIMEOUT_S = 400  # on a machine that is several times as slow as usual, or busy with other work


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests and those of many examples more time, and put slow tests first.

    Each worker of pytest-xdist begins with a share of the items that are side by side, and takes
    from the others when it has none left. So each share begins with slow tests: whatever is left
    for the end is short, and no processor waits for the last test.
    """
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.timeout(MANY_EXAMPLES_TIMEOUT_S))
        elif item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    shares = getattr(config, "workerinput", {}).get("workercount", 1)
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    items[:] = [
        item
        for number in range(shares)
        for some in (slow, others)
        for item in some[number * len(some) // shares : (number + 1) * len(some) // shares]
    ]


class TurnedClock:
    """Starts at a round number and moves when told, also backwards."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def turn(self, by_ms: int) -> None:
        self._now_ms += by_ms


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that the system does not trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Certificate:
    """The certificate of a coordinator on loopback."""
    return authority.issue("coordinator")
