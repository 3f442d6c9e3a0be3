"""What is there? A look at a server and a schema that changes nothing."""

from typing import NamedTuple

from rota.errors import StoreError
from rota.store.postgres import schema
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.link import Link, LinkLost, Refused

LIMIT_MS = 5_000


class Look(NamedTuple):
    address: Address
    server: str
    version: int  # of the schema; 0: there is none
    known: int
    problem: str | None  # why this store cannot be used


def look(url: str, name: str) -> Look:
    address = address_of(url, name)
    known = schema.newest_version()
    try:
        link = Link(address.url, name="rota-doctor", limit_ms=LIMIT_MS)
        try:
            (server,) = schema.texts(link, b"SHOW server_version")
            version = schema.version_of(link, address)
            problem = _problem(link, address, version)
        finally:
            link.close()
    except (LinkLost, Refused) as error:
        raise StoreError(f"{address.shown} cannot be used as a store: {error}") from None
    return Look(address, server, version, known, problem)


def _problem(link: Link, address: Address, version: int) -> str | None:
    try:
        schema.check_server(link, address)
        if version > schema.newest_version():
            schema.check_newer(link, address, version)
    except StoreError as error:
        return error.detail
    return None
