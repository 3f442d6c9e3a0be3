"""The TypeScript client and worker over TLS and with tokens, against a real coordinator."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.sdk.client import calls
from tests.certificates import Authority, Certificate
from tests.clients import node
from tests.clients.node import PACKAGE, Node
from tests.sdk.serving import Server, token_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

(NODE, *_) = node.find_nodes()
PROGRAM = str(PACKAGE / "build" / "test" / "programs" / "roundtrip.js")


@pytest.fixture(scope="module")
def using() -> Node:
    node.build(NODE)
    return NODE


@pytest.fixture
def secured(tmp_path: Path, certificate: Certificate) -> Iterator[Server]:
    """A coordinator over TLS that lets in nobody without a token."""
    settings = {"require_token": True, "zmq_port": None, **certificate.settings()}
    with Server(tmp_path, **settings) as running:
        yield running


def roundtrip(using: Node, server: Server, **variables: str) -> dict[str, Any]:
    """Run the program to its end; its answer is a result, or an error."""
    done = node.run(using, PROGRAM, variables={"ROTA_URL": server.url, **variables})
    assert done.returncode == 0, done.stdout
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def tasks_in(server: Server, authority: Authority) -> int:
    with Rota(server.url, token=token_of(server, "read"), verify=authority.ca) as app:
        return len(app.client.run(calls.list_tasks()).items)


# --- TLS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_client_and_a_worker_with_tokens_speak_tls_under_an_authority_of_their_own(
    using: Node, secured: Server, authority: Authority, transport: str
) -> None:
    answer = roundtrip(
        using,
        secured,
        NODE_EXTRA_CA_CERTS=authority.ca,
        SUBMIT_TOKEN=token_of(secured, "submit"),
        WORK_TOKEN=token_of(secured, "worker"),
        TRANSPORT=transport,
    )

    assert secured.url.startswith("https://")
    assert answer == {"result": 42}


@pytest.mark.parametrize("has_other_authority", [True, False])
def test_a_certificate_of_an_unknown_authority_is_refused(
    using: Node, secured: Server, authority: Authority, tmp_path: Path, *, has_other_authority: bool
) -> None:
    variables = {"SUBMIT_TOKEN": token_of(secured, "submit")}
    if has_other_authority:
        variables["NODE_EXTRA_CA_CERTS"] = Authority(tmp_path / "other").ca

    answer = roundtrip(using, secured, **variables)

    assert answer["code"] == "unavailable"
    assert f"the certificate of the coordinator at {secured.url} is not" in answer["message"]
    assert "set NODE_EXTRA_CA_CERTS" in answer["message"]
    assert tasks_in(secured, authority) == 0


def test_a_certificate_for_another_host_is_refused(
    using: Node, tmp_path: Path, authority: Authority
) -> None:
    elsewhere = authority.issue("elsewhere", hosts="DNS:elsewhere.example")
    with Server(tmp_path, **elsewhere.settings()) as server:
        answer = roundtrip(using, server, NODE_EXTRA_CA_CERTS=authority.ca)

    assert answer["code"] == "unavailable"
    assert "does not match certificate" in answer["message"]
    assert "NODE_EXTRA_CA_CERTS" not in answer["message"]


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "rota_" + "x" * 40])
def test_a_caller_without_a_known_token_is_told_so(
    using: Node, secured: Server, authority: Authority, token: str
) -> None:
    answer = roundtrip(using, secured, NODE_EXTRA_CA_CERTS=authority.ca, SUBMIT_TOKEN=token)

    assert (answer["code"], answer["status"]) == ("unauthorized", 401)
    assert "token" in answer["message"]
    assert tasks_in(secured, authority) == 0


def test_a_token_of_too_small_a_scope_is_refused_with_what_it_lacks(
    using: Node, secured: Server, authority: Authority
) -> None:
    answer = roundtrip(
        using,
        secured,
        NODE_EXTRA_CA_CERTS=authority.ca,
        SUBMIT_TOKEN=token_of(secured, "read"),
    )

    assert (answer["code"], answer["status"]) == ("forbidden", 403)
    assert "submit" in answer["message"]
    assert tasks_in(secured, authority) == 0


@pytest.mark.parametrize(("scope", "status"), [("submit", 403), (None, 401)])
def test_a_worker_without_a_fitting_token_ends_with_the_error(
    using: Node, secured: Server, authority: Authority, scope: str | None, status: int
) -> None:
    answer = roundtrip(
        using,
        secured,
        NODE_EXTRA_CA_CERTS=authority.ca,
        SUBMIT_TOKEN=token_of(secured, "submit"),
        WORK_TOKEN="rota_unknown" if scope is None else token_of(secured, scope),
    )

    assert answer["status"] == status
    assert answer["code"] == ("forbidden" if status == 403 else "unauthorized")
