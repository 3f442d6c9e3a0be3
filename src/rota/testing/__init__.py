"""Testing tools: a coordinator in memory with a clock that tests turn.

    def test_a_signup_sends_one_mail(rota):        # the fixture of the pytest plugin
        rota.attach(app)
        signup("ada")
        rota.assert_enqueued(send_mail, args={"to": "ada"}, count=1)
        assert rota.drain().succeeded == 1

Names are loaded when they are first used: pytest imports this package at every start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.testing.coordinator import TestCoordinator as TestCoordinator
    from rota.testing.coordinator import TurnedClock as TurnedClock
    from rota.testing.drain import Drained as Drained
    from rota.testing.handlers import Performed as Performed
    from rota.testing.handlers import aperform as aperform
    from rota.testing.handlers import perform as perform
    from rota.testing.handlers import perform_attempt as perform_attempt

_HOMES = {
    "Drained": "rota.testing.drain",
    "Performed": "rota.testing.handlers",
    "TestCoordinator": "rota.testing.coordinator",
    "TurnedClock": "rota.testing.coordinator",
    "aperform": "rota.testing.handlers",
    "perform": "rota.testing.handlers",
    "perform_attempt": "rota.testing.handlers",
}

__all__ = [  # noqa: PLE0604 - the table above is the one list of names
    *_HOMES
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
