"""Rota inside applications of FastAPI and Starlette: lifespan, dependency, dashboard."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi", reason="the extra `fastapi` is not installed")

from fastapi import Depends, FastAPI, WebSocket
from msgspec import convert
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from rota import Invalid, Rota
from rota.administration import create_token, open_database
from rota.asgi import dashboard, get_rota, lifespan
from rota.errors import StoreLocked
from rota.gateways.auth.authenticator import new_token
from rota.messages import TokenRequest
from rota.settings import Settings
from tests.sdk.serving import PATIENCE_S, Server

ORIGIN = {"origin": "http://testserver"}


def app_on(folder: Path) -> Rota:
    rota = Rota(f"sqlite:///{folder}/rota.db")

    @rota.task
    def double(number: int) -> int:
        return 2 * number

    return rota


def token_for(folder: Path, *scopes: str, queues: list[str] | None = None) -> dict[str, str]:
    """The header of a token that is made before the server starts."""
    asked = convert({"name": "t", "scopes": scopes, "queues": queues}, TokenRequest)
    token, secret = new_token(asked, now_ms=1)
    create_token(Settings(store=f"sqlite:///{folder}/rota.db"), token)
    return {"authorization": f"Bearer {secret}"}


# --- lifespan and dependency --------------------------------------------------------------------


def test_the_coordinator_lives_as_long_as_the_server(tmp_path: Path) -> None:
    rota = app_on(tmp_path)
    app = FastAPI(lifespan=lifespan(rota))

    @app.post("/double/{number}")
    async def start(number: int, given: Annotated[Rota, Depends(get_rota)]) -> int:
        assert given is rota
        handle = await given.tasks["double"].aenqueue(number)
        return int(await handle.aresult(PATIENCE_S))

    for _ in range(2):  # a server may be started again
        with TestClient(app) as client:
            assert client.post("/double/21").json() == 42
            with pytest.raises(StoreLocked):
                open_database(Settings(store=f"sqlite:///{tmp_path}/rota.db"))
        open_database(Settings(store=f"sqlite:///{tmp_path}/rota.db")).close()


def test_the_lifespan_of_the_application_runs_inside_and_keeps_its_state(tmp_path: Path) -> None:
    rota = app_on(tmp_path)
    seen: list[Any] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        handle = await rota.tasks["double"].aenqueue(2)
        seen.append(await handle.aresult(PATIENCE_S))
        yield {"greeting": "hello"}
        seen.append(await (await rota.tasks["double"].aenqueue(3)).aresult(PATIENCE_S))

    app = FastAPI(lifespan=lifespan(rota, own))

    @app.get("/state")
    async def state(connection: HTTPConnection) -> str:
        return f"{connection.state.greeting} {connection.state.rota is rota}"

    with TestClient(app) as client:
        assert client.get("/state").json() == "hello True"
    assert seen == [4, 6]


def test_an_error_of_the_applications_lifespan_stops_the_coordinator(tmp_path: Path) -> None:
    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[None]:
        if not hasattr(app, "a database"):
            raise ValueError("the application cannot start")
        yield

    with (
        pytest.raises(ValueError, match="cannot start"),
        TestClient(FastAPI(lifespan=lifespan(app_on(tmp_path), own))),
    ):
        pass

    open_database(Settings(store=f"sqlite:///{tmp_path}/rota.db")).close()


def test_a_websocket_handler_gets_the_app_too(tmp_path: Path) -> None:
    rota = app_on(tmp_path)
    app = FastAPI(lifespan=lifespan(rota))

    @app.websocket("/socket")
    async def talk(socket: WebSocket, given: Annotated[Rota, Depends(get_rota)]) -> None:
        await socket.accept()
        await socket.send_text(str(given is rota))

    with TestClient(app) as client, client.websocket_connect("/socket") as socket:
        assert socket.receive_text() == "True"


def test_without_the_lifespan_the_dependency_says_what_is_missing() -> None:
    async def show(request: HTTPConnection) -> JSONResponse:
        return JSONResponse(str(await get_rota(request)))

    client = TestClient(Starlette(routes=[Route("/", show)]))

    with pytest.raises(Invalid, match=r"lifespan=lifespan\(rota\)"):
        client.get("/")


def test_a_file_that_another_process_has_is_explained(tmp_path: Path) -> None:
    database = open_database(Settings(store=f"sqlite:///{tmp_path}/rota.db"))
    try:
        with (
            pytest.raises(StoreLocked, match=r"Only one process of a server .* `rota up --store"),
            TestClient(FastAPI(lifespan=lifespan(app_on(tmp_path)))),
        ):
            pass
    finally:
        database.close()


def test_a_worker_in_the_server_serves_a_coordinator_elsewhere(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        rota = Rota(server.url)

        @rota.task
        def double(number: int) -> int:
            return 2 * number

        app = FastAPI(lifespan=lifespan(rota, worker=True))
        app.mount("/rota", dashboard(rota))
        with TestClient(app) as client:
            assert double.enqueue(4).result(PATIENCE_S) == 8
            answer = client.get("/rota/api/tasks")
        assert answer.status_code == 404
        assert "not inside it" in answer.json()["detail"]
        assert server.url not in answer.text


# --- the dashboard and the API ------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mounted")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, dict[str, str]]:
    """Headers of tokens, made before the server has the file open."""
    return {
        "admin": token_for(folder, "admin"),
        "tenant": token_for(folder, "submit", "read", queues=["other"]),
    }


@pytest.fixture(scope="module")
def client(folder: Path, tokens: dict[str, dict[str, str]]) -> Iterator[TestClient]:
    """An application with two mounts: one for tokens, one that decides by a header."""

    async def is_ada(connection: HTTPConnection) -> bool:
        return connection.headers.get("x-user") == "ada"

    rota = app_on(folder)
    app = FastAPI(lifespan=lifespan(rota))
    app.mount("/rota", dashboard(rota))
    app.mount("/admin/queue", dashboard(rota, authorize=is_ada))
    app.mount("/sync", dashboard(rota, authorize=lambda request: "x-user" in request.headers))
    app.router.routes.append(Mount("/of/{tenant:path}/end", app=dashboard(rota)))
    with TestClient(app) as running:
        rota.tasks["double"].enqueue(1).result(PATIENCE_S)
        yield running


@pytest.mark.parametrize("mount", ["/rota", "/admin/queue"])
def test_the_page_names_its_files_below_the_mount(client: TestClient, mount: str) -> None:
    page = client.get(f"{mount}/tasks", headers={"x-user": "ada"})

    files = set(re.findall(r'(?:src|href)="([^"]+)"', page.text))
    assert page.status_code == 200
    assert len(files) > 3
    for file in files:
        assert file.startswith(f"{mount}/static/")
        assert client.get(file, headers={"x-user": "ada"}).status_code == 200
    assert "'self'" in page.headers["content-security-policy"]


def test_callers_without_a_token_are_refused_wherever_they_claim_to_be(client: TestClient) -> None:
    for headers in ({}, {"host": "localhost"}, {"host": "127.0.0.1"}, {"x-user": "ada"}):
        for path in ("/rota/api/tasks", "/rota/api/overview", "/rota/metrics"):
            assert client.get(path, headers=headers).status_code == 401
        made = client.post("/rota/api/tasks", json={"name": "double"}, headers=headers)
        assert made.status_code == 401


def test_a_token_opens_what_it_opens_elsewhere(
    client: TestClient, tokens: dict[str, dict[str, str]]
) -> None:
    admin, tenant = tokens["admin"], tokens["tenant"]

    items = client.get("/rota/api/tasks", headers=admin).json()["items"]
    made = client.post("/rota/api/tasks", json={"name": "double"}, headers=tenant)

    assert [one["name"] for one in items] == ["double"]
    assert client.get(f"/rota/api/tasks/{items[0]['id']}", headers=tenant).status_code == 403
    assert client.get("/rota/api/tasks", headers=tenant).json()["items"] == []
    assert made.status_code == 403
    assert client.get("/rota/api/tasks", headers={"authorization": "Bearer x"}).status_code == 401


def test_a_login_leaves_a_cookie_for_the_mount_only(
    client: TestClient, tokens: dict[str, dict[str, str]]
) -> None:
    secret = tokens["admin"]["authorization"].removeprefix("Bearer ")

    answer = client.post("/rota/api/login", json={"token": secret}, headers=ORIGIN)

    assert answer.status_code == 200
    assert "; Path=/rota;" in answer.headers["set-cookie"]
    assert client.get("/rota/api/me").json()["is_token"] is True
    foreign = {"origin": "http://evil.example"}
    stopped = client.post("/rota/api/queues/default/pause", headers=foreign)
    assert stopped.status_code == 403
    client.cookies.clear()


@pytest.mark.parametrize("mount", ["/admin/queue", "/sync"])
def test_the_application_can_decide_itself(client: TestClient, mount: str) -> None:
    basic = {"authorization": "Basic eDp5"}  # of the application, which is not Rota's

    assert client.get(f"{mount}/api/tasks").status_code == 403
    assert client.get(f"{mount}/static/app.js").status_code == 403
    admitted = client.get(f"{mount}/api/tasks", headers={"x-user": "ada", **basic})
    assert [one["name"] for one in admitted.json()["items"]] == ["double"]


def test_a_foreign_page_changes_nothing_with_the_rights_of_its_visitor(client: TestClient) -> None:
    path = "/admin/queue/api/queues/default/pause"
    visitor = {"x-user": "ada"}

    assert client.post(path, headers={**visitor, "origin": "http://evil"}).status_code == 403
    assert client.post(path, headers={**visitor, **ORIGIN}).status_code == 200
    resumed = client.post(path.replace("pause", "resume"), headers={**visitor, **ORIGIN})
    assert resumed.status_code == 200


def test_a_mount_with_a_path_of_the_visitor_does_not_reach_the_page(client: TestClient) -> None:
    good = client.get("/of/acme/end/")
    bad = client.get("/of/%22%3E%3Cscript%3E/end/")

    assert 'src="/of/acme/end/static/' in good.text
    assert bad.status_code == 404
    assert "<script>" not in bad.text


def test_names_with_slashes_arrive_whole(
    client: TestClient, tokens: dict[str, dict[str, str]]
) -> None:
    path = "/rota/api/memory/a%2Fb"
    stored = client.put(path, json={"value": 1}, headers=tokens["admin"])

    assert stored.status_code in {200, 201}
    listed = client.get("/rota/api/memory", headers=tokens["admin"]).json()
    assert "a/b" in str(listed)


def test_websockets_are_refused_below_the_mount(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/rota/ws"):
        pass


def test_the_reference_of_the_api_works_below_the_mount(client: TestClient) -> None:
    page = client.get("/rota/docs")

    assert 'fetch("openapi.json")' in page.text
    assert client.get("/rota/openapi.json").status_code == 200
