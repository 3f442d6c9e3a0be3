"""The key file: client keys, and the workers and services each may speak for.

A key file is TOML. It holds the coordinator's own secret key, and for each client its public key,
with the services and the workers that it may speak for; `*` and `?` match other characters:

    [coordinator]
    secret = "…"

    [[client]]
    name = "feeds"
    public = "…"
    services = ["feed-*"]
    workers = ["feed-worker-?"]

Only its owner may read the file: the secret is enough to pose as the coordinator. Clients keep
their own secrets, which are never stored here.
"""

import os
import stat
import tempfile
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
import zmq
from msgspec import Meta, Struct

from rota.core.access import Caller, Scope
from rota.core.tasks.model import Name
from rota.errors import Conflict, Invalid, NotFound

KEY_PATTERN = r"^[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}$"  # 32 bytes in the alphabet Z85
MOST_CLIENTS = 10_000  # keys in one file
MOST_PATTERNS = 1_000  # services or workers that one key lists
ANYTHING = "*"  # the pattern that every name matches
OTHERS = stat.S_IRWXG | stat.S_IRWXO

Key = Annotated[str, Meta(pattern=KEY_PATTERN)]
Patterns = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST_PATTERNS)]


class ClientKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client that may connect, and what it may speak for."""

    name: Name
    public: Key
    services: Patterns
    workers: Patterns

    def may_speak_for(self, service: str, worker_id: str) -> bool:
        return _matches(service, self.services) and _matches(worker_id, self.workers)

    def caller(self) -> Caller:
        """The client as a caller, for the rules about owners.

        It has the same binding as another key for the same services and workers, and as a token
        for the same services and worker id. A key for everything is bound to nothing.
        """
        is_for_all_services = ANYTHING in self.services
        workers = sorted(set(self.workers))
        if ANYTHING in workers:
            worker_id = None
        else:
            worker_id = workers[0] if len(workers) == 1 else msgspec.json.encode(workers).decode()
        return Caller(
            name=self.name,
            scopes=(Scope.WORKER,),
            queues=None if is_for_all_services else (),
            services=None if is_for_all_services else self.services,
            worker_id=worker_id,
        )


class CoordinatorKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    secret: Key

    @property
    def public(self) -> str:
        """The public key by which clients know the coordinator."""
        return zmq.curve_public(self.secret.encode()).decode()


class KeyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    coordinator: CoordinatorKey
    client: Annotated[tuple[ClientKey, ...], Meta(max_length=MOST_CLIENTS)] = ()


class NewClient(Struct, frozen=True, kw_only=True):
    """All that a client needs to connect; the secret is shown once, and stored nowhere."""

    name: str
    public: str
    secret: str | None  # None: the client made its own
    coordinator: str  # its public key


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


# --- reading ------------------------------------------------------------------------------------


def read_keys(path: Path) -> KeyFile:
    """Read a key file; raises `Invalid` with the reason when it cannot be used."""
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except OSError as error:
        raise Invalid(f"the key file {path} cannot be read: {error.strerror}") from error
    if mode & OTHERS:
        raise Invalid(f"other users can access the key file {path}: run `chmod 600 {path}`")
    try:
        keys = msgspec.toml.decode(text, type=KeyFile)
        zmq.curve_public(keys.coordinator.secret.encode())
    except msgspec.ValidationError as error:
        raise Invalid(f"the key file {path} is not valid: {error}") from None
    except (ValueError, zmq.ZMQError):
        # The text is not repeated: it may be the secret.
        raise Invalid(f"the key file {path} is not well formed") from None
    _refuse_doubles(path, keys.client)
    return keys


def _refuse_doubles(path: Path, clients: Sequence[ClientKey]) -> None:
    for field in ("name", "public"):
        counted = Counter(getattr(client, field) for client in clients)
        value, times = next(iter(counted.most_common(1)), ("", 0))
        if times > 1:
            raise Invalid(f"the key file {path} has two clients with the {field} {value!r}")


# --- writing ------------------------------------------------------------------------------------


def create_keys(path: Path) -> KeyFile:
    """Create a key file with a new key for the coordinator, and no clients."""
    if path.exists():
        raise Conflict(f"{path} exists already")
    _, secret = zmq.curve_keypair()
    keys = KeyFile(coordinator=CoordinatorKey(secret=secret.decode()))
    _write(path, keys)
    return keys


def add_client(
    path: Path,
    *,
    name: str,
    services: Sequence[str],
    workers: Sequence[str],
    public: str | None = None,
) -> NewClient:
    """Add a client; without a public key, it gets a new pair of keys."""
    keys = read_keys(path)
    secret: str | None = None
    if public is None:
        public, secret = (one.decode() for one in zmq.curve_keypair())
    asked = {"name": name, "public": public, "services": services, "workers": workers}
    try:
        client = msgspec.convert(asked, ClientKey)
    except msgspec.ValidationError as error:
        raise Invalid(f"this client is not valid: {error}") from error
    for known in keys.client:
        if client.name == known.name or client.public == known.public:
            raise Conflict(f"{path} has this client already, under the name {known.name!r}")
    _write(path, msgspec.structs.replace(keys, client=(*keys.client, client)))
    return NewClient(name=name, public=public, secret=secret, coordinator=keys.coordinator.public)


def remove_client(path: Path, name: str) -> None:
    """Remove a client; its open connections are refused within seconds."""
    keys = read_keys(path)
    others = tuple(client for client in keys.client if client.name != name)
    if len(others) == len(keys.client):
        raise NotFound(f"{path} has no client named {name!r}")
    _write(path, msgspec.structs.replace(keys, client=others))


def _write(path: Path, keys: KeyFile) -> None:
    """Replace the file whole, or not at all."""
    try:
        # A file made this way is its owner's alone.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_text(keys))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Invalid(f"the key file {path} cannot be written: {error.strerror}") from error


def _text(keys: KeyFile) -> str:
    lines = [
        "# Keys of a Rota coordinator. A reader of this file can pose as the coordinator.",
        "",
        "[coordinator]",
        f"secret = {_quoted(keys.coordinator.secret)}",
    ]
    for client in keys.client:
        lines += [
            "",
            "[[client]]",
            f"name = {_quoted(client.name)}",
            f"public = {_quoted(client.public)}",
            f"services = [{', '.join(map(_quoted, client.services))}]",
            f"workers = [{', '.join(map(_quoted, client.workers))}]",
        ]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """A TOML string: that of JSON, but for one character."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
