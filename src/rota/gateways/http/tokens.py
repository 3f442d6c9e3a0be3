"""Access tokens over HTTP: made, listed and revoked by operators."""

from rota.core.access import Action
from rota.core.events import AddToken, RevokeToken
from rota.errors import TokenNotFound
from rota.gateways.gate import new_token
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import NewTokenAnswer, TokenPage, TokenRequest, TokenRevoked, TokenView


async def create(call: Call[TokenRequest, NoQuery]) -> NewTokenAnswer:
    token, secret = new_token(call.body, now_ms=call.coordinator.clock.now_ms())
    await call.coordinator.handle(AddToken(token))
    call.service.gate.forget_tokens()
    return NewTokenAnswer(
        id=token.id,
        name=token.name,
        scopes=token.scopes,
        queues=token.queues,
        services=token.services,
        worker_id=token.worker_id,
        created_at_ms=token.created_at_ms,
        expires_at_ms=token.expires_at_ms,
        token=secret,
    )


async def listing(call: Call[None, NoQuery]) -> TokenPage:
    tokens = await call.coordinator.queries.tokens()
    return TokenPage(
        items=[
            TokenView(
                id=token.id,
                name=token.name,
                scopes=token.scopes,
                queues=token.queues,
                services=token.services,
                worker_id=token.worker_id,
                created_at_ms=token.created_at_ms,
                expires_at_ms=token.expires_at_ms,
            )
            for token in tokens
        ]
    )


async def revoke(call: Call[None, NoQuery]) -> TokenRevoked:
    await call.coordinator.handle(RevokeToken(call.parameter))
    call.service.gate.forget_tokens()
    return TokenRevoked(id=call.parameter)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/tokens",
        summary="List access tokens",
        noun="Access",
        action=Action.OPERATE,
        handler=listing,
        answer=TokenPage,
    ),
    Endpoint(
        method="POST",
        path="/api/tokens",
        summary="Create an access token",
        description="The answer is the only place that ever shows the token itself.",
        noun="Access",
        action=Action.OPERATE,
        handler=create,
        body=TokenRequest,
        is_body_needed=True,
        answer=NewTokenAnswer,
        status=201,
    ),
    Endpoint(
        method="DELETE",
        path="/api/tokens/{token_id}",
        summary="Revoke an access token",
        noun="Access",
        action=Action.OPERATE,
        handler=revoke,
        answer=TokenRevoked,
        errors=(TokenNotFound,),
    ),
)
