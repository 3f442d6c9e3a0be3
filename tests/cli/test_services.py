import signal
from pathlib import Path

import pytest

from rota.cli.render.output import ExitCode
from rota.messages.shards import AssignmentData, MemberHeartbeat, MemberRegistration
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall, path_at, post
from tests.cli.conftest import Command, document
from tests.cli.processes import running


def register(
    name: str, worker_id: str, shards: int, *, protocol: int = 2
) -> ApiCall[AssignmentData]:
    body = MemberRegistration(
        worker_id=worker_id, max_shard_count=shards, incarnation=1, protocol=protocol
    )
    return post(path_at("services", name, "members"), AssignmentData, body)


def beat(
    name: str, worker_id: str, told: AssignmentData, *, shards: int
) -> ApiCall[AssignmentData]:
    """A beat of a member that does as it was told."""
    body = MemberHeartbeat(
        max_shard_count=shards,
        assigned_shards=list(told.assigned_shards),
        incarnation=1,
        generation=told.generation,
    )
    return post(path_at("services", name, "members", worker_id, "heartbeat"), AssignmentData, body)


@pytest.fixture
def orders(client: Client) -> str:
    """A service of ten shards with one member that owns all of them."""
    name = "orders"
    client.run(register(name, "w1", 10))
    return name


def test_services_are_listed_with_what_they_have(rota: Command, orders: str) -> None:
    lines = rota("services", "ls").stdout.splitlines()
    listed = document(rota("services", "ls", "--json"))

    assert lines[0].split()[:4] == ["SERVICE", "SHARDS", "PINNED", "MEMBERS"]
    assert [orders, "10", "no", "1", "0", "0"] in [line.split()[:6] for line in lines]
    assert orders in [one["name"] for one in listed["items"]]


def test_a_service_is_shown_with_a_letter_for_each_shard(rota: Command, orders: str) -> None:
    text = rota("services", "show", orders).stdout

    assert "0 A  A  A  A  A  A  A  A  A  A\n" in text
    assert ["A", "w1", "healthy", "settled", "10"] in [
        line.split()[:5] for line in text.splitlines()
    ]


def test_a_service_shows_what_is_moving(rota: Command, client: Client) -> None:
    first = client.run(register("moving", "w1", 10))
    client.run(register("moving", "w2", 10))
    _settle(client, "moving", "w1", first)

    text = rota("services", "show", "moving").stdout

    assert "0 A  A  A  A  A  a  a  a  a  a\n" in text
    assert "gives up 5" in text
    assert "awaits 5" in text


def _settle(client: Client, name: str, worker_id: str, told: AssignmentData) -> None:
    """Beat until shards are asked back, and give up none of them."""
    while len(told.revoking) == 0:
        body = MemberHeartbeat(
            max_shard_count=10,
            assigned_shards=[*told.assigned_shards, *told.revoking],
            incarnation=1,
            generation=told.generation,
        )
        path = path_at("services", name, "members", worker_id, "heartbeat")
        told = client.run(post(f"{path}?wait_ms=5000", AssignmentData, body))


def test_the_view_of_the_api_is_printed_for_programs(rota: Command, orders: str) -> None:
    shown = document(rota("services", "show", orders, "--json"))

    assert shown["shard_count"] == 10
    assert shown["members"][0]["shards"] == list(range(10))


def test_a_service_that_is_not_there_is_not_found(rota: Command) -> None:
    for command in (("show", "no"), ("unpin", "no"), ("drain", "no", "w1"), ("require", "no", "2")):
        ended = rota("services", *command)

        assert ended.exit_code == ExitCode.FAILED
        assert (
            "service 'no' not found; it exists once a worker registers for it (service_not_found)"
            in " ".join(ended.stderr.split())
        )
    assert "no" not in [one["name"] for one in document(rota("services", "ls", "--json"))["items"]]


def test_the_number_of_shards_is_pinned_and_unpinned(rota: Command, client: Client) -> None:
    client.run(register("pinned", "w1", 10))

    pinned = rota("services", "pin", "pinned", "12").stdout
    again = document(rota("services", "pin", "pinned", "12", "--json"))
    unpinned = rota("services", "unpin", "pinned").stdout

    assert pinned == "service pinned has 12 shards, pinned; it had 10 before\n"
    assert (again["shard_count"], again["pinned"]) == (12, True)
    assert unpinned == ("service pinned has 10 shards; from now on its workers set the number\n")


def test_a_service_can_be_pinned_before_it_has_workers(rota: Command) -> None:
    made = rota("services", "pin", "early", "4").stdout
    shown = rota("services", "show", "early").stdout

    assert made == "service early has 4 shards, pinned; it is new and has no workers yet\n"
    assert "0 .  .  .  .\n" in shown
    assert "no members: the first worker that registers gets the shards" in shown


@pytest.mark.parametrize("count", ["0", "200001", "many"])
def test_a_number_of_shards_that_cannot_be_is_refused(rota: Command, count: str) -> None:
    ended = rota("services", "pin", "orders", count)

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "1<=x<=200000" in ended.stderr or "not a valid integer" in ended.stderr


def test_a_member_is_drained_and_taken_back(rota: Command, client: Client) -> None:
    client.run(register("drained", "w1", 10))

    drained = rota("services", "drain", "drained", "w1").stdout
    undone = rota("services", "drain", "drained", "w1", "--undo").stdout
    missing = rota("services", "drain", "drained", "w9")

    assert drained == (
        "worker w1 is draining: it has 10 shards of drained to give up; "
        "no other member can take them\n"
    )
    assert undone == "worker w1 can get shards of drained again\n"
    assert missing.exit_code == ExitCode.FAILED
    assert "member_not_found" in missing.stderr


def test_old_workers_are_put_out_only_when_somebody_says_yes(rota: Command, client: Client) -> None:
    client.run(register("old", "w1", 10, protocol=1))

    asked = rota("services", "require", "old", "2")
    done = rota("services", "require", "old", "2", "--yes")
    shown = document(rota("services", "show", "old", "--json"))

    assert asked.exit_code == ExitCode.UNUSABLE
    assert "give --yes" in asked.stderr
    assert done.stdout == ("service old accepts only workers of protocol 2; 1 member was evicted\n")
    assert (shown["min_protocol"], shown["members"]) == (2, [])


# The second is how a shell starts a background job.
@pytest.mark.parametrize("before", ["", "env --ignore-signal=INT"])
def test_a_watched_service_is_told_line_by_line(
    rota: Command, client: Client, url: str, tmp_path: Path, before: str
) -> None:
    name = f"watched-{tmp_path.name}"
    told = client.run(register(name, "w1", 10))
    command = ("services", "show", name, "--watch")

    with running(*command, folder=tmp_path, before=before, ROTA_URL=url) as watch:
        watch.wait_for(f"{name}: generation 1, 10 shards, 1 members, 0 unowned, 0 moving")
        rota("services", "pin", name, "20")
        client.run(beat(name, "w1", told, shards=10))
        watch.wait_for("20 shards, 1 members, 0 unowned, 0 moving")
        watch.signal(signal.SIGINT)

        assert watch.ends() == ExitCode.INTERRUPTED


def test_watching_is_for_people(rota: Command, orders: str) -> None:
    ended = rota("services", "show", orders, "--watch", "--json")

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "--watch cannot be used with --json" in ended.stderr


def test_a_token_is_bound_to_a_service(rota: Command) -> None:
    made = ("token", "create", "--scope", "worker", "--service", "orders", "--worker-id", "w1")
    created = document(rota(*made, "--json"))
    (line,) = [line for line in rota("token", "ls").stdout.splitlines() if created["id"] in line]
    rota("token", "revoke", created["id"])

    assert created["services"] == ["orders"]
    assert line.split()[2:6] == ["worker", "none", "orders", "w1"]
