"""Tokens of several tenants at one coordinator, as tests about their bindings need them."""

from typing import Any

import httpx

from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken, RevokeToken
from rota.gateways.auth.authenticator import hash_of, new_secret
from tests.gateways.serving import Api, Json


class Tenant:
    """The holder of one token, speaking HTTP over a real socket."""

    def __init__(self, api: Api, token_id: str, secret: str) -> None:
        self.api = api
        self.token_id = token_id
        self.headers = {"authorization": f"Bearer {secret}"}

    async def call(self, method: str, path: str, body: Json = None) -> httpx.Response:
        return await self.api.client.request(method, path, json=body, headers=self.headers)

    async def get(self, path: str) -> httpx.Response:
        return await self.call("GET", path)

    async def post(self, path: str, body: Json = None) -> httpx.Response:
        return await self.call("POST", path, body)

    async def revoke(self) -> None:
        """As an operator at this coordinator does it."""
        await self.api.node.coordinator.execute(RevokeToken(self.token_id))
        self.api.node.authenticator.forget_tokens()


async def tenant(api: Api, *scopes: str, **bound: Any) -> Tenant:
    """A token that is written past the rules of its creation: some were made before those."""
    secret = new_secret()
    added = AccessToken(
        id=f"t-{secret[5:12]}",
        hash=hash_of(secret),
        name="-".join(scopes),
        scopes=tuple(map(Scope, scopes)),
        created_at_ms=0,
        **bound,
    )
    await api.node.coordinator.execute(AddToken(added))
    api.node.authenticator.forget_tokens()
    return Tenant(api, added.id, secret)
