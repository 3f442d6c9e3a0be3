"""Logging in: how a browser gets a session."""

import re
from pathlib import Path
from typing import Any

import pytest

from rota.administration import create_token
from rota.core.access import AccessToken
from rota.gateways.auth.authenticator import new_token
from rota.messages import TokenRequest
from tests.gateways.serving import Api, called, served, settings_in

# Who may not do anything may still come and go, and ask what a definition would be worth.
OPEN_TO_ALL = {"/api/login", "/api/logout", "/api/workflows/validate", "/api/schedules/preview"}
ORIGIN = {"origin": "http://rota.example"}


def token_in(folder: Path, *scopes: Any, **options: Any) -> str:
    asked = TokenRequest(scopes=list(scopes), name="ada", **options)
    token, secret = new_token(asked, now_ms=1_800_000_000_000)
    assert isinstance(token, AccessToken)
    create_token(settings_in(folder), token)
    return secret


async def log_in(api: Api, secret: str) -> dict[str, str]:
    answer = await api.post("/api/login", {"token": secret}, headers=ORIGIN)
    assert answer.status_code == 200, answer.text
    api.client.cookies.clear()
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return {"cookie": cookie.partition(";")[0]}


async def test_an_open_coordinator_says_who_is_let_in(api: Api) -> None:
    me = (await api.get("/api/me")).json()

    assert (me["name"], me["is_token"]) == ("local", False)
    assert "operate" in me["actions"]


async def test_a_token_logs_a_browser_in(tmp_path: Path) -> None:
    secret = token_in(tmp_path, "read")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        before = await api.get("/api/me")
        cookie = await log_in(api, secret)
        me = (await api.get("/api/me", headers=cookie)).json()
        tasks = await api.get("/api/tasks", headers=cookie)

    assert before.status_code == 401
    assert (me["name"], me["scopes"], me["is_token"]) == ("ada", ["read"], True)
    assert "read" in me["actions"]
    assert not {"submit", "work", "keep", "operate"} & {*me["actions"]}
    assert tasks.status_code == 200


async def test_a_read_only_browser_is_refused_every_change(tmp_path: Path) -> None:
    secret = token_in(tmp_path, "read")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        headers = {**await log_in(api, secret), **ORIGIN}
        for path in ("/api/queues/mail/pause", "/api/tasks/cancel", "/api/failures/x/retry"):
            answer = await api.post(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
async def test_a_change_with_a_cookie_must_come_from_our_own_pages(
    tmp_path: Path, origin: str | None
) -> None:
    secret = token_in(tmp_path, "admin")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        cookie = await log_in(api, secret)
        foreign = {**cookie, **({} if origin is None else {"origin": origin})}
        refused = await api.post("/api/queues/mail/pause", headers=foreign)
        allowed = await api.post("/api/queues/mail/pause", headers={**cookie, **ORIGIN})

    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert allowed.status_code == 200


async def test_a_wrong_token_logs_nobody_in(tmp_path: Path) -> None:
    token_in(tmp_path, "admin")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        wrong = await api.post("/api/login", {"token": "rota_" + "x" * 43}, headers=ORIGIN)
        foreign = await api.post(
            "/api/login", {"token": "x"}, headers={"origin": "http://e.example"}
        )

    assert (wrong.status_code, foreign.status_code) == (401, 403)
    assert "set-cookie" not in wrong.headers


async def test_logging_out_makes_the_browser_forget(tmp_path: Path) -> None:
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        answer = await api.post("/api/logout", headers=ORIGIN)

    assert "Max-Age=0" in answer.headers["set-cookie"]


async def test_a_left_over_cookie_does_not_lock_out_whom_an_open_door_lets_in(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as api:
        port = api.client.base_url.port
        cookie = {"cookie": f"rota_token_{port}=rota_{'x' * 43}"}
        assert (await api.get("/api/me", headers=cookie)).json()["name"] == "local"


async def test_a_cookie_of_another_port_is_not_ours(tmp_path: Path) -> None:
    secret = token_in(tmp_path, "admin")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        await log_in(api, secret)
        answer = await api.get("/api/me", headers={"cookie": f"rota_token_1={secret}"})

    assert answer.status_code == 401


async def test_a_read_only_token_is_refused_whatever_changes_anything(tmp_path: Path) -> None:
    secret = token_in(tmp_path, "read")
    async with called(tmp_path, require_token=True, host="rota.example") as api:
        headers = {**await log_in(api, secret), **ORIGIN}
        document = (await api.get("/openapi.json", headers=headers)).json()
        answers = {
            (method, path): await api.client.request(
                method, re.sub(r"\{\w+\}", "1", path), headers=headers, json={}
            )
            for path, methods in document["paths"].items()
            for method in methods
            if method in {"post", "put", "patch", "delete"} and path not in OPEN_TO_ALL
        }

    assert len(answers) > 30
    allowed = {one: found.status_code for one, found in answers.items() if found.status_code != 403}
    assert allowed == {}
