"""The OPTIONS of a backend in the settings, and what is wrong with them."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from django.core import checks  # type: ignore[import-untyped]  # Django has no types
from django.db import connections  # type: ignore[import-untyped]  # as above
from msgspec import Struct, ValidationError, convert

from rota.addresses import without_password
from rota.errors import Invalid, did_you_mean
from rota.sdk.inbox import inbox_of
from rota.sdk.task import Options, template_of

DEFAULT_DATABASE = "default"
SCHEMES = ("http://", "https://")

# What becomes of a task that is enqueued inside `transaction.atomic()`: it is submitted after the
# commit, it is a row of the transaction itself, or it is submitted at once.
OnTransaction = Literal["on_commit", "inbox", "ignore"]


class BackendOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The OPTIONS of a backend."""

    url: str | None = None  # of the coordinator, or of several with commas; default: ROTA_URL
    token: str | None = None  # default: ROTA_TOKEN
    verify: bool | str = True  # certificates of https://, as in `Rota(verify=…)`
    transaction: OnTransaction = "on_commit"
    database: str = DEFAULT_DATABASE  # the alias whose transactions count
    schema: str | None = None  # of Rota's tables in that database, for "inbox"
    task_options: dict[str, Any] = {}  # of every task, such as max_attempts


class Finding(NamedTuple):
    """Something that is wrong with the options: an id, a text, and what to do."""

    id: str
    text: str
    hint: str

    def error(self, alias: str) -> Any:
        return checks.Error(f"TASKS[{alias!r}]: {self.text}", hint=self.hint, id=self.id)


def address_of(options: BackendOptions) -> str | None:
    return options.url or os.environ.get("ROTA_URL") or None


def read_options(given: Mapping[str, Any]) -> BackendOptions:
    """The options, if they have the right names and types; otherwise raises `Invalid`."""
    for name in given:
        if name not in BackendOptions.__struct_fields__:
            close = did_you_mean(str(name), sorted(BackendOptions.__struct_fields__))
            raise Invalid(f"OPTIONS has no {name!r}{close}", option=str(name))
    try:
        return convert(dict(given), BackendOptions)
    except ValidationError as error:
        raise Invalid(f"OPTIONS: {error}") from None


def findings(given: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything that is wrong with the options of one backend."""
    try:
        options = read_options(given)
    except Invalid as error:
        known = ", ".join(BackendOptions.__struct_fields__)
        yield Finding("rota.E002", error.detail, f"The options are: {known}.")
        return
    yield from _address_findings(options)
    yield from _database_findings(options)
    try:
        check_task_options(options.task_options)
    except Invalid as error:
        yield Finding("rota.E005", error.detail, "See the options of @app.task in the docs.")


def check_task_options(options: Mapping[str, Any]) -> Options:
    from rota.contrib.django.registry import OF_DJANGO  # noqa: PLC0415 - it needs the settings

    for name in options:
        if name in OF_DJANGO:
            raise Invalid(f"OPTIONS['task_options'] has {name!r}: {OF_DJANGO[name]}")
    checked: Options = {**options}  # type: ignore[typeddict-item]  # checked by the next line
    template_of("of every task", checked)
    return checked


def _address_findings(options: BackendOptions) -> Iterator[Finding]:
    url = address_of(options)
    if url is None:
        yield Finding(
            "rota.E001",
            "there is no URL of a coordinator.",
            'Set OPTIONS["url"] or the variable ROTA_URL, for example to the address that '
            "`rota up` prints.",
        )
        return
    for one in url.split(","):
        if not one.strip().startswith(SCHEMES):
            yield Finding(
                "rota.E003",
                f"the URL {without_password(one.strip())!r} does not start with http:// or "
                "https://.",
                "Web servers and workers are several processes, which share one coordinator: start "
                "it with `rota up` and give its address.",
            )


def _database_findings(options: BackendOptions) -> Iterator[Finding]:
    if options.transaction == "ignore":
        return
    if options.database not in connections:
        aliases = ", ".join(sorted(connections))
        yield Finding(
            "rota.E004",
            f"OPTIONS['database'] is {options.database!r}, which is not in DATABASES.",
            f"There are: {aliases}.",
        )
        return
    if options.transaction != "inbox":
        return
    vendor = connections[options.database].vendor
    if vendor != "postgresql":
        yield Finding(
            "rota.E004",
            f"OPTIONS['transaction'] is 'inbox', but the database {options.database!r} is "
            f"{vendor}.",
            "The inbox is a table in the PostgreSQL that the coordinator uses, too. With any other "
            "database leave the default, 'on_commit'.",
        )
    try:
        inbox_of(options.schema)
    except Invalid as error:
        yield Finding("rota.E004", error.detail, "Give the schema that the coordinator has.")
