"""How are tasks tested? With a coordinator in memory, a clock that is turned, and no waiting.

    def test_a_signup_sends_one_mail(rota):        # the fixture of the pytest plugin
        rota.attach(app)
        signup("ada")
        rota.assert_enqueued(send_mail, args={"to": "ada"}, count=1)
        assert rota.drain().succeeded == 1

Loaded when first used: pytest imports this package at every start, whatever it is going to test.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.testing.clock import TurnedClock as TurnedClock
    from rota.testing.coordinator import TestCoordinator as TestCoordinator
    from rota.testing.draining import Drained as Drained
    from rota.testing.performing import Performed as Performed
    from rota.testing.performing import aperform as aperform
    from rota.testing.performing import perform as perform
    from rota.testing.performing import perform_attempt as perform_attempt

_HOMES = {
    "Drained": "rota.testing.draining",
    "Performed": "rota.testing.performing",
    "TestCoordinator": "rota.testing.coordinator",
    "TurnedClock": "rota.testing.clock",
    "aperform": "rota.testing.performing",
    "perform": "rota.testing.performing",
    "perform_attempt": "rota.testing.performing",
}

__all__ = [  # noqa: PLE0604 - the table above is the one list of names
    *_HOMES
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
