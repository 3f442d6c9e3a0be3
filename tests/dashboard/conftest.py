from tests.gateways.conftest import api

__all__ = ["api"]
