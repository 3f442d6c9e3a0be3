"""Does every query say what it does, and name its parameters, alike on both databases?"""

import re
from pathlib import Path

import pytest

from rota.store import database
from rota.store.database import load_queries, parameter_names

FOLDER = Path(database.__file__).parent / "sql"
DESCRIBED = re.compile(r"^-- name: (\w+)\n-- [A-Z].*\.(?:$| )", re.MULTILINE)
NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
FINISHED = {"tasks.finish_running", "tasks.finish_waiting"}  # take their rows from a staging table

QUERIES = load_queries()
OVERRIDDEN = sorted(
    name for name, text in load_queries("postgres").items() if QUERIES.get(name, text) != text
)


def named_in(file: Path, pattern: re.Pattern[str]) -> set[str]:
    return {f"{file.stem}.{name}" for name in pattern.findall(file.read_text())}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.sql")), ids=lambda file: file.stem)
def test_every_query_has_a_description(file: Path) -> None:
    assert named_in(file, NAMED) - named_in(file, DESCRIBED) == set()


@pytest.mark.parametrize("file", sorted((FOLDER / "postgres").glob("*.sql")), ids=lambda f: f.stem)
def test_every_query_that_only_postgresql_has_is_described(file: Path) -> None:
    own = named_in(file, NAMED) - QUERIES.keys()

    assert own - named_in(file, DESCRIBED) == set()


def test_no_query_has_parameters_without_a_name() -> None:
    unnamed = {name for name, text in load_queries("postgres").items() if "?" in text}

    assert unnamed | {name for name, text in QUERIES.items() if "?" in text} == set()


@pytest.mark.parametrize("name", sorted(set(OVERRIDDEN) - FINISHED))
def test_an_override_takes_the_parameters_of_the_query_that_it_replaces(name: str) -> None:
    override = parameter_names(load_queries("postgres")[name])

    assert sorted(override) == sorted(parameter_names(QUERIES[name]))
