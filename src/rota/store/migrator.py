"""The version of the SQLite schema, and the migrations to the newest.

Migrations are numbered files, each applied once, in one transaction with its number. A database
that is ahead of the code is refused: an older program does not know its schema.
"""

from importlib import resources

import apsw

from rota.errors import StoreTooNew


def migrations() -> dict[int, str]:
    folder = resources.files("rota.store") / "sql" / "migrations"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    found = {int(name.split("_")[0]): (folder / name).read_text() for name in files}
    assert list(found) == list(range(1, len(files) + 1)), "numbered without a gap, none twice"
    return found


def offline() -> str:
    """All migrations as one script."""
    texts = [
        f"BEGIN;\n{text.strip()}\nPRAGMA user_version = {number};\nCOMMIT;\n"
        for number, text in migrations().items()
    ]
    return "\n".join(texts)


def newest_version() -> int:
    return max(migrations())


def version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def migrate(connection: apsw.Connection, *, name: str) -> tuple[int, int]:
    """Apply the missing migrations; returns the versions before and after."""
    known = migrations()
    newest = max(known)
    before = version(connection)
    if before > newest:
        raise StoreTooNew(
            f"{name} was written by a newer Rota (schema {before}; this one knows {newest}): "
            "upgrade this program, or use another file",
            schema=before,
            known=newest,
        )
    for number in [one for one in known if one > before]:
        with connection:
            connection.execute(known[number])
            connection.execute(f"PRAGMA user_version = {number}")
    return before, newest
