import threading

from click.testing import Result

from rota.cli.render.output import ExitCode
from rota.messages.kv import LockAcquire, LockView
from rota.sdk.client import kv_calls
from rota.sdk.client.client import Client
from tests.cli.conftest import Command, document

HOUR_MS = 3_600_000


def take(client: Client, name: str, owner: str = "ann", *, wait_ms: int = 0) -> LockView:
    wish = LockAcquire(owner=owner, ttl_ms=HOUR_MS, wait_ms=wait_ms)
    return client.run(kv_calls.acquire_lock(name, wish))


def test_locks_are_listed_with_who_has_them(rota: Command, client: Client) -> None:
    assert rota("locks", "ls").stdout == "no locks are held\n"
    had = take(client, "listed")

    lines = rota("locks", "ls").stdout.splitlines()

    assert lines[0].split() == ["LOCK", "HOLDER", "FENCE", "EXPIRES", "WAITING"]
    assert lines[1].split() == ["listed", "ann", str(had.fence), "in", "59", "min", "0"]
    assert document(rota("locks", "ls", "--json"))["items"][0]["fence"] == had.fence


def test_one_lock_is_shown_also_when_it_is_free(rota: Command, client: Client) -> None:
    had = take(client, "shown")

    shown = rota("locks", "show", "shown").stdout
    free = rota("locks", "show", "free").stdout

    assert ["holder", "ann"] in [line.split() for line in shown.splitlines()]
    assert document(rota("locks", "show", "shown", "--json"))["fence"] == had.fence
    assert ["holder", "none"] in [line.split() for line in free.splitlines()]


def test_a_lock_is_taken_away_and_the_next_in_line_has_it(rota: Command, client: Client) -> None:
    take(client, "door")
    waiting = threading.Thread(
        target=take, args=(client, "door", "bob"), kwargs={"wait_ms": 30_000}
    )
    waiting.start()
    while not document(rota("locks", "show", "door", "--json"))["waiting"]:
        pass

    released = rota("locks", "release", "door", "--yes")
    waiting.join()
    freed = document(rota("locks", "release", "door", "--yes", "--json"))

    assert released.stdout == "lock door was released, and bob has it now\n"
    assert freed["holder"] is None


def test_a_lock_is_not_taken_away_unless_somebody_confirms(rota: Command, client: Client) -> None:
    take(client, "kept")

    ended = rota("locks", "release", "kept")

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "give --yes" in ended.stderr
    assert document(rota("locks", "show", "kept", "--json"))["holder"] == "ann"


def test_a_lock_that_nobody_has_cannot_be_released(rota: Command) -> None:
    ended: Result = rota("locks", "release", "nothing", "--yes")

    assert ended.exit_code == ExitCode.FAILED
    assert ended.stderr == "error: lock 'nothing' is not held (lock_free)\n"
