"""Access tokens, as hashes."""

import msgspec

from rota.core.access import AccessToken
from rota.store.database import Transaction

_decode = msgspec.json.Decoder(AccessToken).decode


class Access:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def every(self) -> list[AccessToken]:
        return [_decode(token) for (token,) in self._tx.rows("access.every")]

    def ids(self) -> set[str]:
        return {token_id for (token_id,) in self._tx.rows("access.ids")}

    def put(self, token: AccessToken) -> None:
        self._tx.run("access.put", token.id, msgspec.json.encode(token))

    def drop(self, token_id: str) -> None:
        self._tx.run("access.drop", token_id)
