"""Access over HTTP: tokens, the login and logout of browsers, and who the caller is."""

from typing import Any

from rota.core.access import ALLOWED, LOCAL, AccessToken, Action, Caller, check_grant
from rota.core.commands import AddToken, RevokeToken
from rota.errors import Forbidden, TokenNotFound, Unauthorized
from rota.gateways.auth.authenticator import new_token
from rota.gateways.auth.request_auth import check_browser, clear_cookie, set_cookie
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.messages import (
    LoggedOut,
    LoginRequest,
    Me,
    NewTokenAnswer,
    NoFields,
    TokenPage,
    TokenRequest,
    TokenRevoked,
    TokenView,
)

routes = Routes("Access")


# --- tokens ---------------------------------------------------------------------------------------


@routes.post("/api/tokens", Action.OPERATE, status=201)
async def create(call: HttpCall[TokenRequest, NoQuery]) -> NewTokenAnswer:
    """Create an access token.

    The answer is the only place that ever shows the token itself. A token of the scope `admin`
    cannot be bound. No token makes one that is good for longer than itself.
    """
    token, secret = new_token(call.body, now_ms=call.coordinator.clock.now_ms())
    check_grant(call.caller, token)
    await call.coordinator.execute(AddToken(token))
    call.services.authenticator.forget_tokens()
    return NewTokenAnswer(**_shown(token), token=secret)


@routes.get("/api/tokens", Action.OPERATE)
async def listing(call: HttpCall[None, NoQuery]) -> TokenPage:
    """List access tokens."""
    tokens = await call.coordinator.queries.tokens()
    return TokenPage(items=[TokenView(**_shown(token)) for token in tokens])


def _shown(token: AccessToken) -> dict[str, Any]:
    """What is shown of a token: everything but its hash."""
    return {name: getattr(token, name) for name in TokenView.__struct_fields__}


@routes.delete("/api/tokens/{token_id}", Action.OPERATE, errors=(TokenNotFound,))
async def revoke(call: HttpCall[None, NoQuery]) -> TokenRevoked:
    """Revoke an access token."""
    await call.coordinator.execute(RevokeToken(call.path["token_id"]))
    call.services.authenticator.forget_tokens()
    return TokenRevoked(id=call.path["token_id"])


# --- browsers -------------------------------------------------------------------------------------


@routes.get("/api/me", Action.READ)
async def show(call: HttpCall[None, NoQuery]) -> Me:
    """Show the caller and its permissions."""
    return _me(call.caller)


@routes.post("/api/login", None, answer=Me, errors=(Unauthorized, Forbidden))
async def login(call: HttpCall[LoginRequest, NoQuery]) -> HttpResponse:
    """Let a browser keep a token in a cookie.

    The cookie is `HttpOnly` and `SameSite=Strict`. Programs send `Authorization: Bearer …`
    instead.
    """
    check_browser(call.services.authenticator, call.headers, is_change=True)
    caller = await call.services.authenticator.identify(call.body.token)
    is_tls = call.settings.tls_cert is not None
    cookie = set_cookie(call.headers, call.body.token, is_tls=is_tls)
    return encoded(_me(caller))._replace(headers=(cookie,))


@routes.post("/api/logout", None, answer=LoggedOut, errors=(Forbidden,))
async def logout(call: HttpCall[NoFields | None, NoQuery]) -> HttpResponse:
    """Let a browser forget its token."""
    check_browser(call.services.authenticator, call.headers, is_change=True)
    return encoded(LoggedOut())._replace(headers=(clear_cookie(call.headers),))


def _me(caller: Caller) -> Me:
    actions = {action for scope in caller.scopes for action in ALLOWED[scope]}
    return Me(
        name=caller.name,
        scopes=[scope.value for scope in caller.scopes],
        actions=[action.value for action in Action if action in actions],
        queues=caller.queues,
        services=caller.services,
        is_token=caller is not LOCAL,
    )
