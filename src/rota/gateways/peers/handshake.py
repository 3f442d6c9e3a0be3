"""The handshake of a link: both ends prove that they know the secret, before anything else.

Sans-I/O. The acceptor sends a `Challenge`, the dialer answers with a `Hello`, the acceptor decides
with a `Verdict`. A proof is a HMAC over the role of its sender, both nonces, and everything that
the two have said of themselves: it serves for one connection, one direction and one epoch. A dialer
that cannot prove itself learns no more than that it is refused. The frames that follow carry no
proofs, so a network that others can write to needs TLS.
"""

import hashlib
import hmac
import secrets
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

PROTOCOL = 1  # the newest version of the link that this coordinator speaks
OLDEST = max(1, PROTOCOL - 1)  # the oldest one: a rolling upgrade has two versions at a time

NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size
MAX_NAME_LENGTH = 256
MAX_HANDSHAKE_BYTES = 4 * 1024  # of all that one end sends before the handshake is over

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Proof = Annotated[bytes, Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]
PeerName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Role = Literal["dialer", "acceptor"]

# Why a link is refused. `not_a_peer` is found by the dialer alone: no coordinator has answered.
Refusal = Literal["forbidden", "malformed", "not_leader", "version", "not_a_peer"]
UNPROVEN = bytes(PROOF_BYTES)
M = TypeVar("M")


class LinkRefused(Exception):  # noqa: N818 - read where it is caught: `except LinkRefused`
    """The peer refuses the link, or is refused."""

    def __init__(self, reason: Refusal, detail: str, *, epoch: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Refusal = reason
        self.epoch = epoch  # of `not_leader`: the epoch at which the peer leads, if it does


class Challenge(Struct, frozen=True, array_like=True):
    version: int
    nonce: Nonce


class Hello(Struct, frozen=True, array_like=True):
    version: int  # the one that both speak
    name: PeerName
    epoch: int  # at which the dialer takes the acceptor for the leader
    nonce: Nonce
    proof: Proof


class Verdict(Struct, frozen=True, array_like=True):
    refusal: Refusal | None
    name: str = ""
    epoch: int | None = None  # at which the acceptor leads; None: it does not
    proof: Proof = UNPROVEN


def _check_version(version: int) -> int:
    if not OLDEST <= version <= PROTOCOL:
        text = f"the peer speaks version {version}, and this one {OLDEST} to {PROTOCOL}"
        raise LinkRefused("version", text)
    return version


def _prove(secret: bytes, role: Role, *said: object) -> bytes:
    # MessagePack is unambiguous: no two lists of values have the same bytes.
    assert secret
    return hmac.digest(secret, msgspec.msgpack.encode(["rota-peer", role, *said]), "sha256")


class AcceptorHandshake:
    """The handshake of the coordinator that is called. One for each connection."""

    def __init__(self, secret: bytes, name: str) -> None:
        self._secret = secret
        self._name = name
        self._challenge = Challenge(PROTOCOL, secrets.token_bytes(NONCE_BYTES))

    def challenge(self) -> bytes:
        return msgspec.msgpack.encode(self._challenge)

    def answer(self, message: bytes, leading_epoch: int | None) -> tuple[Hello, bytes]:
        """Check a `Hello`; return it with the verdict to send.

        Raises `LinkRefused` for a peer that does not know the secret.
        """
        hello = _decoded(message, Hello)
        said = (
            _check_version(hello.version),
            self._challenge.nonce,
            hello.nonce,
            hello.name,
            hello.epoch,
        )
        if not hmac.compare_digest(hello.proof, _prove(self._secret, "dialer", *said)):
            raise LinkRefused("forbidden", "the peer does not know the secret of this store")
        refusal: Refusal | None = None if leading_epoch == hello.epoch else "not_leader"
        proof = _prove(self._secret, "acceptor", *said, refusal, self._name, leading_epoch)
        verdict = Verdict(refusal, self._name, leading_epoch, proof)
        return hello, msgspec.msgpack.encode(verdict)


class DialerHandshake:
    """The handshake of the coordinator that calls."""

    def __init__(self, secret: bytes, name: str, epoch: int) -> None:
        self._secret = secret
        self._name = name
        self._epoch = epoch
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._said: tuple[object, ...] = ()

    def hello(self, message: bytes) -> bytes:
        """Answer a `Challenge`."""
        challenge = _decoded(message, Challenge)
        version = _check_version(min(challenge.version, PROTOCOL))
        self._said = version, challenge.nonce, self._nonce, self._name, self._epoch
        proof = _prove(self._secret, "dialer", *self._said)
        return msgspec.msgpack.encode(Hello(version, self._name, self._epoch, self._nonce, proof))

    def conclude(self, message: bytes) -> str:
        """Check the verdict; return the name of the peer, which leads at the expected epoch."""
        verdict = _decoded(message, Verdict)
        said = *self._said, verdict.refusal, verdict.name, verdict.epoch
        if not hmac.compare_digest(verdict.proof, _prove(self._secret, "acceptor", *said)):
            if verdict.refusal is not None and verdict.refusal != "not_leader":
                raise LinkRefused(verdict.refusal, "the peer says so, without a proof")
            raise LinkRefused("forbidden", "the peer does not know the secret of this store")
        if verdict.refusal is not None:
            detail = f"{verdict.name} does not lead at epoch {self._epoch}"
            raise LinkRefused(verdict.refusal, detail, epoch=verdict.epoch)
        return verdict.name


def unproven_refusal(refusal: Refusal) -> bytes:
    """The verdict about a peer that has not proved itself."""
    return msgspec.msgpack.encode(Verdict(refusal))


def _decoded(message: bytes, kind: type[M]) -> M:
    try:
        return msgspec.msgpack.decode(message, type=kind)
    except ValueError as error:
        raise LinkRefused("malformed", f"not a {kind.__name__}") from error
