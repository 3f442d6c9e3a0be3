"""Inspects a server and a schema without changing anything."""

from typing import NamedTuple

from rota.errors import StoreError
from rota.store.postgres import schema
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.link import ConnectionLost, StatementRefused

LIMIT_MS = 5_000


class ProbeResult(NamedTuple):
    address: Address
    server: str
    version: int  # of the schema; 0: there is none
    known: int
    problem: str | None  # why this store cannot be used


def probe(url: str, name: str) -> ProbeResult:
    address = address_of(url, name)
    known = schema.newest_version()
    try:
        connection = PostgresConnection(address.url, name="rota-doctor", limit_ms=LIMIT_MS)
        try:
            (server,) = schema.texts(connection, b"SHOW server_version")
            version = schema.version_of(connection, address)
            problem = _problem(connection, address, version)
        finally:
            connection.close()
    except (ConnectionLost, StatementRefused) as error:
        raise StoreError(f"{address.shown} cannot be used as a store: {error}") from None
    return ProbeResult(address, server, version, known, problem)


def _problem(connection: PostgresConnection, address: Address, version: int) -> str | None:
    try:
        schema.check_server(connection, address)
        if version > schema.newest_version():
            schema.check_newer(connection, address, version)
    except StoreError as error:
        return error.detail
    return None
