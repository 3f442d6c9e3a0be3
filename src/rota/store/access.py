"""Access tokens, as hashes."""

import msgspec

from rota.core.access import AccessToken
from rota.store.database import Transaction

_decode = msgspec.json.Decoder(AccessToken).decode


class TokenStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def all(self) -> list[AccessToken]:
        return [_decode(token) for token in self._tx.column("access.all")]

    def ids(self) -> set[str]:
        return set(self._tx.column("access.ids"))

    def put(self, token: AccessToken) -> None:
        self._tx.pipeline("access.put", id=token.id, token=msgspec.json.encode(token))

    def delete(self, token_id: str) -> None:
        self._tx.pipeline("access.delete", id=token_id)
