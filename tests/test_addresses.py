"""No password is in any text: not in errors, not in the log, however the address is written."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rota import Rota, telemetry
from rota.addresses import without_password
from rota.cli.main import cli
from rota.errors import Invalid, RotaError
from rota.store import opening
from rota.store.copying.copier import open_side
from tests.cli.processes import run

SECRET = "hunter2"
WITH_SECRET = [
    f"host=127.0.0.1 password={SECRET} dbname=d",
    f"host=127.0.0.1 password='{SECRET} x' dbname=d",
    f"host=127.0.0.1 password = {SECRET}",
    f"password={SECRET}",
    f"password={SECRET} host=x://y",
    f"postgresql://u:{SECRET}@127.0.0.1:1/d",
    f"postgresql://u:{SECRET}@@127.0.0.1:1/d",
    f"postgresql://u:{SECRET}",
    f"postgresql://u:{SECRET}/x@127.0.0.1:1/d",
    f"postgresql://u:x/{SECRET}@127.0.0.1:1/d",
    f"postgresql://u:{SECRET}?x@127.0.0.1:1/d",
    f"postgresql://u:x?{SECRET}@127.0.0.1:1/d",
    f"postgresql://u:{SECRET}#x@127.0.0.1:1/d",
    f"postgresql://127.0.0.1:1/d?password={SECRET}",
    f"postgresql://127.0.0.1:1/d?Password={SECRET}",
    f"postgresql://127.0.0.1:1/d?pass%77ord={SECRET}",
    f"postgresql://127.0.0.1:1/d?sslpassword={SECRET}",
    f"postgresql://127.0.0.1:1/d?sslmode=x;password={SECRET}",
    f"postgresql://127.0.0.1:1/d?options=-c%20x.password={SECRET}",
    f"postgresql:/u:{SECRET}@127.0.0.1/d",
    f"postgresql:u:{SECRET}@127.0.0.1/d",
    f"mysql://u:{SECRET}@127.0.0.1/d",
    f"u:{SECRET}@127.0.0.1/d",
]


@pytest.mark.parametrize("address", WITH_SECRET)
def test_an_address_is_shown_without_its_secret(address: str) -> None:
    assert SECRET not in without_password(address)


@pytest.mark.parametrize(
    "address",
    [
        "rota.db",
        "sqlite:rota.db",
        "sqlite:///rota.db",
        "sqlite:////var/lib/rota and more/rota.db",
        "postgresql://u@h:5432/d",
        "postgresql://h1:5432,h2:5433/d?target_session_attrs=read-write",
        "postgresql://[::1]:5432/d?schema=other&sslmode=verify-full",
        "http://127.0.0.1:7070",
    ],
)
def test_an_address_without_a_secret_is_shown_as_it_is(address: str) -> None:
    assert without_password(address) == address


@given(st.text(min_size=1))
def test_a_quoted_password_is_never_shown(password: str) -> None:
    marked = f"{password}{SECRET}"

    shown = without_password(f"postgresql://user:{quote(marked, safe='')}@host/database")

    assert shown == "postgresql://user:…@host/database"


USES: dict[str, Callable[[str], object]] = {
    "opened": opening.open_database,
    "looked for": opening.file_of,
    "written as SQL": lambda address: opening.sql_of(address, "rota"),
    "copied": open_side,
    "called": Rota,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("address", WITH_SECRET)
def test_an_error_about_an_address_has_no_secret_in_it(use: str, address: str) -> None:
    try:
        USES[use](address)
    except RotaError as error:
        told = f"{error} {error.detail} {error.facts}"
        assert SECRET not in told
        causes = [error.__cause__, None if error.__suppress_context__ else error.__context__]
        assert all(SECRET not in str(cause) for cause in causes)


@pytest.mark.parametrize(
    "command", [["up", "--port", "0"], ["doctor"], ["migrate"], ["token", "ls"]]
)
@pytest.mark.parametrize("address", WITH_SECRET[:2] + WITH_SECRET[5:9])
def test_no_command_prints_a_secret(command: list[str], address: str) -> None:
    # With a URL of its own, so that no coordinator is asked that happens to run here.
    told = CliRunner().invoke(
        cli, [*command, "--store", address], env={"ROTA_URL": "http://127.0.0.1:1"}
    )

    assert told.exit_code != 0
    assert SECRET not in told.output
    assert SECRET not in str(told.exception)


def test_a_copy_prints_no_secret(tmp_path: Path) -> None:
    told = run("copy", "--from", WITH_SECRET[0], "--to", WITH_SECRET[5], folder=tmp_path)

    assert told.returncode != 0
    assert SECRET not in told.stdout + told.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"cannot connect: host=h password={SECRET} dbname=d",
        f"cannot connect: password = '{SECRET} it\\'s' dbname=d",
        f"cannot connect: postgresql://u:{SECRET}@h/d",
        f"cannot connect: postgresql://u:p@{SECRET}@h/d",
        f"cannot connect: postgresql://h/d?user=u&password={SECRET}&sslmode=x",
    ],
)
def test_the_log_covers_a_password_wherever_it_stands(text: str) -> None:
    covered = telemetry.cover_secrets(None, "", {"event": text, "error": Invalid(text)})

    assert SECRET not in str(covered)
    assert "cannot connect" in str(covered)
