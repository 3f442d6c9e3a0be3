"""Which stores are copied, by their URLs? And is there a copy that was not finished?"""

from rota.errors import Invalid, StoreError
from rota.store.copying.sqlite_side import SqliteSide
from rota.store.copying.tables import Side
from rota.store.opening import is_postgres


def open_side(url: str, *, must_exist: bool = False) -> Side:
    if not is_postgres(url):
        if not url.startswith("sqlite:"):
            raise Invalid(f"{url!r} is neither a sqlite:/// nor a postgresql:// URL", field="url")
        return SqliteSide(url, must_exist=must_exist)
    try:
        # Only who uses it needs it: it is an extra.
        from rota.store.copying.postgres_side import PostgresSide  # noqa: PLC0415
    except ImportError as error:
        raise StoreError(
            f"a store on PostgreSQL needs psycopg ({error}): pip install 'rota[postgres]'"
        ) from error
    return PostgresSide(url)
