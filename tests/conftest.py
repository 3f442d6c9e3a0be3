"""What all tests share: a clock that moves when told, and how hard hypothesis looks."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

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
