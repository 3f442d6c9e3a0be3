"""Is a key file what its owner meant, and nobody else's?"""

import stat
from pathlib import Path

import pytest
import zmq
from structlog import get_logger

from rota.errors import Conflict, Forbidden, Invalid, NotFound
from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq.auth.keyring import CHECK_EVERY_S, Keyring
from rota.gateways.zeromq.auth.keys import add_client, create_keys, read_keys, remove_client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    create_keys(path)
    return path


class Watch:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def add(path: Path, name: str = "feeds") -> str:
    return add_client(path, name=name, services=["feed-*"], workers=["w-?", "boss"]).public


# --- the file -----------------------------------------------------------------------------------


def test_a_new_file_is_its_owners_alone_and_has_a_key(path: Path) -> None:
    keys = read_keys(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.client == ()
    assert keys.coordinator.public == zmq.curve_public(keys.coordinator.secret.encode()).decode()


def test_a_file_that_is_there_is_not_made_anew(path: Path) -> None:
    before = path.read_bytes()

    with pytest.raises(Conflict, match="exists already"):
        create_keys(path)

    assert path.read_bytes() == before


def test_a_client_gets_a_pair_whose_secret_is_kept_nowhere(path: Path) -> None:
    added = add_client(path, name="feeds", services=["feed-*"], workers=["w-?"])

    assert added.secret is not None
    assert zmq.curve_public(added.secret.encode()).decode() == added.public
    assert added.coordinator == read_keys(path).coordinator.public
    assert added.secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_client_may_bring_its_own_key(path: Path) -> None:
    public = zmq.curve_keypair()[0].decode()

    added = add_client(path, name="own", services=["s"], workers=["w"], public=public)

    assert (added.public, added.secret) == (public, None)
    assert [client.public for client in read_keys(path).client] == [public]


def test_what_was_written_is_read_whatever_the_names(path: Path) -> None:
    patterns = ['"quoted"', "back\\slash", "tab\tbell\x07del\x7f", "zwölf 🦉", "[a-c]*"]

    add_client(path, name="odd \n one", services=patterns, workers=patterns)
    add(path)

    odd, plain = read_keys(path).client
    assert (odd.name, odd.services, odd.workers) == ("odd \n one", tuple(patterns), tuple(patterns))
    assert plain.name == "feeds"


def test_a_client_is_removed_by_its_name(path: Path) -> None:
    add(path, "one")
    add(path, "two")

    remove_client(path, "one")

    assert [client.name for client in read_keys(path).client] == ["two"]
    with pytest.raises(NotFound, match="'one'"):
        remove_client(path, "one")


def test_a_client_is_not_added_twice(path: Path) -> None:
    public = add(path)

    with pytest.raises(Conflict, match="feeds"):
        add(path)
    with pytest.raises(Conflict, match="feeds"):
        add_client(path, name="other", services=["s"], workers=["w"], public=public)


@pytest.mark.parametrize(
    ("name", "services", "workers", "public"),
    [
        ("", ["s"], ["w"], None),
        ("n", [], ["w"], None),
        ("n", ["s"], [""], None),
        ("n", ["s"], ["w"], "short"),
        ("n", ["s"], ["w"], "ü" * 40),
    ],
    ids=["no name", "no service", "an empty worker", "a short key", "no key"],
)
def test_a_client_that_makes_no_sense_is_refused(
    path: Path, name: str, services: list[str], workers: list[str], public: str | None
) -> None:
    with pytest.raises(Invalid, match="is not valid"):
        add_client(path, name=name, services=services, workers=workers, public=public)

    assert read_keys(path).client == ()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_get_at_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)

    with pytest.raises(Invalid, match="chmod 600"):
        read_keys(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[coordinator",
        "[coordinator]\nsecret = 5",
        '[coordinator]\nsecret = "{secret}{secret}"',
        '[coordinator]\nsecret = "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~"',
        '[coordinator]\nsecret = "{secret}"\ncolour = 1',
        '[coordinator]\nsecret = "{secret}"\n[[client]]\nname = "n"\npublic = "{secret}"',
        "[coordinator]\nsecret = {secret}",
    ],
    ids=["empty", "half", "number", "long", "letters", "unknown", "client", "bare"],
)
def test_a_file_that_is_not_valid_is_refused_without_its_secret(path: Path, text: str) -> None:
    secret = read_keys(path).coordinator.secret
    path.write_text(text.replace("{secret}", secret))

    with pytest.raises(Invalid, match=r"keys\.toml") as refusal:
        read_keys(path)

    assert secret not in refusal.value.detail


def test_two_clients_of_one_name_or_key_are_refused(path: Path) -> None:
    add(path)
    text = path.read_text()
    client = text[text.index("[[client]]") :]

    path.write_text(text + client)

    with pytest.raises(Invalid, match="two clients with the name 'feeds'"):
        read_keys(path)


def test_a_file_that_is_not_there_or_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"none\.toml cannot be read"):
        read_keys(tmp_path / "none.toml")
    with pytest.raises(Invalid, match=r"none/keys\.toml cannot be written"):
        create_keys(tmp_path / "none" / "keys.toml")


# --- what a key may say -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "worker_id", "is_allowed"),
    [
        ("feed-1", "w-1", True),
        ("feed-", "boss", True),
        ("feed", "boss", False),
        ("mail", "w-1", False),
        ("feed-1", "w-10", False),
        ("Feed-1", "w-1", False),
        ("feed-1", "BOSS", False),
    ],
)
def test_a_key_speaks_only_for_what_it_lists(
    path: Path, service: str, worker_id: str, *, is_allowed: bool
) -> None:
    add(path)
    (client,) = read_keys(path).client

    assert client.may_speak_for(service, worker_id) is is_allowed


def test_a_file_that_changes_is_seen_within_seconds(path: Path) -> None:
    watch = Watch()
    keyring = Keyring(path, ThrottledLog(get_logger()), watch)
    public = add(path)
    assert not keyring.is_known(public)

    watch.now_s += CHECK_EVERY_S
    assert keyring.is_known(public)
    keyring.check(public, "feed-1", "w-1")

    remove_client(path, "feeds")
    keyring.check(public, "feed-1", "w-1")
    watch.now_s += CHECK_EVERY_S
    with pytest.raises(Forbidden, match="no longer known"):
        keyring.check(public, "feed-1", "w-1")


def test_a_file_that_is_broken_meanwhile_leaves_the_keys_as_they_were(path: Path) -> None:
    watch = Watch()
    public = add(path)
    keyring = Keyring(path, ThrottledLog(get_logger()), watch)

    path.write_text("[coordinator")
    watch.now_s += CHECK_EVERY_S
    assert keyring.is_known(public)
    path.unlink()
    watch.now_s += CHECK_EVERY_S

    assert keyring.is_known(public)


def test_a_refusal_names_the_key_and_what_it_may_not(path: Path) -> None:
    public = add(path)

    with pytest.raises(Forbidden, match=r"'feeds' may not speak for worker 'x' of service 'mail'"):
        Keyring(path, ThrottledLog(get_logger())).check(public, "mail", "x")
