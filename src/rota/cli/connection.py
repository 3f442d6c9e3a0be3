"""How does a command reach a coordinator? By `--url` and `--token`, through the SDK's client."""

import functools
from collections.abc import Callable
from typing import Any

from rota.cli.options import token_option, url_option
from rota.sdk.client import Client


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url` and `--token` to a command, and hand it a client made of them."""

    @url_option
    @token_option
    @functools.wraps(function)
    def with_client(*arguments: Any, url: str, token: str | None, **options: Any) -> Any:
        client = Client.connect(url, token)
        try:
            return function(*arguments, client=client, **options)
        finally:
            client.close()

    return with_client
