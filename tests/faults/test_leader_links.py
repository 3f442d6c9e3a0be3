"""The link between a follower and its leader is lost, half open or not trusted."""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from rota.engine.replicas.held import HOLD_S, NO_LEADER
from rota.gateways.peers.link import KEEPALIVE_S, SILENCE_S
from tests.certificates import Authority, Certificate
from tests.cli.processes import Running, run, running
from tests.faults.callers import PLAIN
from tests.faults.leading import ask, leader_of, longest_gap, others, start_probers, wait_for_write
from tests.faults.postgres import PostgresPlace
from tests.faults.processes import ROOT, Scene, scene
from tests.faults.proxy import Proxy

PAIR = 2
ANSWER_S = 30.0
DROPPED_S = SILENCE_S + 2 * KEEPALIVE_S  # looked at once in each keepalive interval
SLACK_S = 2.0  # of a machine with other things to do
GAP_LIMIT_S = 1.0
TASK = {"name": PLAIN, "payload": {"number": 1}}
LIMIT_S = 120

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


class Answered(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: Any


def answer_of(
    url: str, method: str, path: str, body: Any = None, *, ca: str | None = None
) -> Answered:
    """Call a coordinator once, and take what it answers."""
    address = urlsplit(url).netloc
    connection: http.client.HTTPConnection
    if ca is None:
        connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    else:
        context = ssl.create_default_context(cafile=ca)
        connection = http.client.HTTPSConnection(address, timeout=ANSWER_S, context=context)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return Answered(response.status, response.headers, json.loads(response.read()))
    finally:
        connection.close()


def wait_until_red(staged: Scene, replica: int) -> float:
    """Wait until a coordinator is not ready; how long that took."""
    began = time.monotonic()
    staged.wait(lambda: not staged.is_ready(staged.urls[replica]))
    return time.monotonic() - began


# --- lost -----------------------------------------------------------------------------------------


def test_a_follower_without_its_leader_refuses_and_the_leader_goes_on(
    tmp_path: Path, place: PostgresPlace
) -> None:
    with scene(tmp_path, place, replicas=PAIR, has_link_proxies=True) as staged:
        leader = leader_of(staged)
        (follower,) = others(staged, leader.replica)
        staged.start_plain_worker_at("plain", [staged.urls[leader.replica]])
        probers = start_probers(staged, at=[leader.replica])
        ask(staged.urls[follower], "POST", "/api/tasks", TASK)

        cut_at = time.monotonic()
        staged.link_proxies[leader.replica].drop()
        wait_until_red(staged, follower)
        held = answer_of(staged.urls[follower], "POST", "/api/tasks", TASK)
        asked_at = time.monotonic()
        refused = answer_of(staged.urls[follower], "POST", "/api/tasks", TASK)
        refused_s = time.monotonic() - asked_at
        ready = answer_of(staged.urls[follower], "GET", "/health/ready")
        health = answer_of(staged.urls[follower], "GET", "/health")
        wait_for_write(staged, probers, sent_after=time.monotonic())
        gap_s = longest_gap(probers, since=cut_at)

        staged.link_proxies[leader.replica].heal()
        after = leader_of(staged)
        ask(staged.urls[follower], "POST", "/api/tasks", TASK)
        staged.finish()
        said = staged.coordinators[follower].find("leader_link_lost")

    assert (held.status, refused.status, ready.status) == (503, 503, 503)
    assert int(refused.headers["Retry-After"]) >= 1
    assert int(ready.headers["Retry-After"]) >= 1
    assert refused.body["detail"] == ready.body["detail"] == NO_LEADER
    assert refused_s < HOLD_S  # it was only held as long as a takeover could have been under way
    checks = {one["component"]: one for one in health.body["checks"]}
    assert not checks["leader"]["isHealthy"]
    assert said
    assert gap_s < GAP_LIMIT_S
    assert after == leader  # no takeover
    assert staged.problems() == []


@pytest.mark.parametrize("trouble", [Proxy.half_open, Proxy.partition], ids=["half-open", "silent"])
def test_a_link_whose_frames_vanish_is_dropped_within_its_keepalive_limit(
    tmp_path: Path, place: PostgresPlace, trouble: Callable[[Proxy], None]
) -> None:
    with scene(tmp_path, place, replicas=PAIR, has_link_proxies=True) as staged:
        leader = leader_of(staged)
        (follower,) = others(staged, leader.replica)
        staged.start_plain_worker_at("plain", [staged.urls[leader.replica]])
        probers = start_probers(staged, at=[leader.replica])

        cut_at = time.monotonic()
        trouble(staged.link_proxies[leader.replica])
        dropped_s = wait_until_red(staged, follower)
        wait_for_write(staged, probers, sent_after=time.monotonic())
        gap_s = longest_gap(probers, since=cut_at)

        staged.link_proxies[leader.replica].heal()
        after = leader_of(staged)
        task = ask(staged.urls[follower], "POST", "/api/tasks", TASK)
        done = ask(staged.urls[follower], "GET", f"/api/tasks/{task['id']}?wait_ms=10000")
        staged.finish()

    assert dropped_s <= DROPPED_S + SLACK_S
    assert gap_s < GAP_LIMIT_S
    assert after == leader
    assert done["state"] == "succeeded"
    assert staged.problems() == []


# --- TLS ------------------------------------------------------------------------------------------


def started(
    folder: Path, place: PostgresPlace, certificate: Certificate, *, ca: str
) -> AbstractContextManager[Running]:
    """A coordinator with TLS that trusts the authorities of a file."""
    flags = ("--tls-cert", certificate.cert, "--tls-key", certificate.key)
    options = ("--port", "0", "--store", place.url(0), "--log-level", "warning", "--json")
    return running("up", *options, *flags, folder=folder, ROTA_CA=ca)


def url_of(process: Running) -> str:
    return str(json.loads(process.wait_for('"url"'))["url"])


def test_a_follower_forwards_over_tls(
    tmp_path: Path, place: PostgresPlace, authority: Authority, certificate: Certificate
) -> None:
    with started(tmp_path, place, certificate, ca=authority.ca) as first:
        leader_url = url_of(first)
        with started(tmp_path, place, certificate, ca=authority.ca) as second:
            follower_url = url_of(second)
            system = answer_of(follower_url, "GET", "/api/system", ca=authority.ca)
            worker = ("worker", "tests.faults.worker_app:app", "--url", leader_url, "--json")
            variables = {
                "ROTA_CA": authority.ca,
                "ROTA_URL": leader_url,
                "PYTHONPATH": str(ROOT),
                "FAULTS_RECORD": str(tmp_path / "record.jsonl"),
            }
            with running(*worker, folder=tmp_path, **variables) as process:
                process.wait_for('"worker_id"')
                submit = ("submit", "double", "--payload", '{"number": 4}', "--wait", "--json")
                done = run(*submit, "--url", follower_url, "--ca", authority.ca, folder=tmp_path)

    assert follower_url.startswith("https://")
    assert (system.body["role"], system.body["leader"]["address"]) == ("follower", leader_url)
    assert '"result":8' in done.stdout.replace(" ", ""), done.stderr


def test_a_follower_that_does_not_trust_its_leader_is_not_ready_and_says_why(
    tmp_path: Path, place: PostgresPlace, authority: Authority, certificate: Certificate
) -> None:
    other = Authority(tmp_path / "other")
    with started(tmp_path, place, certificate, ca=authority.ca) as first:
        leader_url = url_of(first)
        with started(tmp_path, place, certificate, ca=other.ca) as second:
            said = second.wait_for("leader_unreachable")
            ready = answer_of(url_of(second), "GET", "/health/ready", ca=authority.ca)
            leading = answer_of(leader_url, "GET", "/api/system", ca=authority.ca)

    assert "certificate verify failed" in said
    assert "ROTA_CA" in said
    assert (ready.status, ready.body["detail"]) == (503, NO_LEADER)
    assert (leading.body["role"], leading.body["leader"]["epoch"]) == ("leader", 1)
