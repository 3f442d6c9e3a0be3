"""Logging in over HTTP: who am I, and how does a browser come to be somebody?"""

from rota.core.access import ALLOWED, LOCAL, Action, Caller
from rota.errors import Forbidden, Unauthorized
from rota.gateways.http import cookies
from rota.gateways.http.answers import Answered, encoded
from rota.gateways.http.endpoint import Call, Endpoint, NoQuery
from rota.messages import LoggedOut, LoginRequest, Me, NoFields


async def show(call: Call[None, NoQuery]) -> Me:
    return _me(call.caller)


async def login(call: Call[LoginRequest, NoQuery]) -> Answered:
    cookies.check_browser(call.service.gate, call.headers, is_change=True)
    caller = await call.service.gate.identify(call.body.token)
    answer = encoded(_me(caller))
    return answer._replace(headers=(cookies.keeping(call.headers, call.body.token),))


async def logout(call: Call[NoFields | None, NoQuery]) -> Answered:
    cookies.check_browser(call.service.gate, call.headers, is_change=True)
    return encoded(LoggedOut())._replace(headers=(cookies.forgetting(call.headers),))


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


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/me",
        summary="Say who is asking, and what they may do",
        noun="Access",
        action=Action.READ,
        handler=show,
        answer=Me,
    ),
    Endpoint(
        method="POST",
        path="/api/login",
        summary="Let a browser keep a token in a cookie",
        description="The cookie is `HttpOnly` and `SameSite=Strict`. Programs send "
        "`Authorization: Bearer …` instead.",
        noun="Access",
        action=None,
        handler=login,
        body=LoginRequest,
        is_body_needed=True,
        answer=Me,
        errors=(Unauthorized, Forbidden),
    ),
    Endpoint(
        method="POST",
        path="/api/logout",
        summary="Let a browser forget its token",
        noun="Access",
        action=None,
        handler=logout,
        answer=LoggedOut,
        errors=(Forbidden,),
    ),
)
