"""Encodes the arguments of a call as a payload, and decodes a payload for a handler.

A payload is a JSON object with one field per parameter: a submitter in any language writes
`{"path": "a.png", "width": 200}`. Parameters with defaults may be left out; `*names` is an array
and `**options` an object under its own name. `null` means no arguments.

Both ends use the same decoder, so a handler accepts every payload that `enqueue` accepts.

The keys of limits and tenants may be templates over the same arguments, as `str.format` has them:
`"user:{user_id}"`. They are filled when a call is enqueued; the coordinator never sees a template.
"""

import inspect
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from inspect import Parameter
from types import GenericAlias, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from rota.core import limits
from rota.core.flows.model import named_limits
from rota.core.tasks.model import NewTask
from rota.errors import Invalid
from rota.sdk.encoding import can_decode, decoder_of, encode
from rota.sdk.outcomes import HandlerAnswer

_EMPTY = frozenset({b"{}", b"null"})
_PLACE = re.compile(r" - at `\$\.?([^`.\[]*)")
_NO_ARGUMENTS = Raw(b"{}")
_IMMUTABLE = (str, int, float, bool, bytes, type(None))


class InvalidArguments(Invalid, TypeError):  # noqa: N818 - as the errors it belongs to
    """An argument does not fit the task's signature; the text names it."""


class Arguments:
    """The signature of a handler as the schema of its payload.

    Built on first use: annotations may name types that are defined after the function.
    """

    def __init__(self, function: Callable[..., Any], *, task: str) -> None:
        self._function = function
        self._task = task
        self._signature = inspect.signature(function)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in their order."""
        return tuple(self._signature.parameters)

    @property
    def first(self) -> str | None:
        """The name of the first parameter; None: there is none, or it takes more than one value."""
        first = next(iter(self._signature.parameters.values()), None)
        many = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        return None if first is None or first.kind in many else first.name

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return _resolved(self._function)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        fields = [_field(one, self._hints) for one in self._signature.parameters.values()]
        shape = msgspec.defstruct(
            f"{self._task} payload", fields, kw_only=True, forbid_unknown_fields=True
        )
        return decoder_of(shape)

    @cached_property
    def result_decoder(self) -> msgspec.json.Decoder[Any]:
        return decoder_of(_result_kind(self._hints.get("return", Any)))

    @cached_property
    def _takes_none(self) -> bool:
        return not self._signature.parameters

    @cached_property
    def _required(self) -> tuple[str, ...]:
        """The parameters without a default."""
        parameters = self._signature.parameters.values()
        return tuple(one.name for one in parameters if one.default is Parameter.empty)

    @cached_property
    def _is_positional(self) -> bool:
        kinds = {one.kind for one in self._signature.parameters.values()}
        return kinds <= {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Raw:
        """Check the arguments of a call and encode them as a payload."""
        given = self._bound(args, kwargs)
        if not given and self._takes_none:
            return _NO_ARGUMENTS
        try:
            payload = encode(given)
        except Exception:  # noqa: BLE001 - users' code encodes users' types
            raise self._unencodable(given) from None
        try:
            self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise self._mismatch(error) from None
        return Raw(payload)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of their parameters."""
        if not kwargs and len(args) == len(self._required) and self._is_positional:
            return dict(zip(self._required, args, strict=True))  # the fast path of most calls
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"task {self._task!r}: {error}", task=self._task) from None

    def by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call that has been checked, with the defaults of those left out."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def decode(self, payload: Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode a payload into positional and keyword arguments."""
        content = bytes(payload)
        if content in _EMPTY:
            if self._takes_none:
                return (), {}
            content = b"{}"
        try:
            values = self._decoder.decode(content)
        except msgspec.DecodeError as error:
            raise self._mismatch(error) from None
        if self._is_positional:
            return msgspec.structs.astuple(values), {}
        return self._arrange(values)

    def _arrange(self, values: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            value = getattr(values, name)
            match parameter.kind:
                case Parameter.VAR_POSITIONAL:
                    args.extend(value)
                case Parameter.VAR_KEYWORD:
                    kwargs.update(value)
                case Parameter.KEYWORD_ONLY:
                    kwargs[name] = value
                case _:
                    args.append(value)
        return tuple(args), kwargs

    def _unencodable(self, given: dict[str, Any]) -> InvalidArguments:
        for name, value in given.items():
            try:
                encode(value)
            except Exception as error:  # noqa: BLE001 - as above
                return self._invalid(name, str(error))
        raise AssertionError("an argument that could not be encoded can be encoded now")

    def _mismatch(self, error: msgspec.DecodeError) -> InvalidArguments:
        text = str(error)
        place = _PLACE.search(text)
        if place is None:
            return InvalidArguments(f"task {self._task!r}: {text}", task=self._task)
        return self._invalid(place[1], text)

    def _invalid(self, argument: str, text: str) -> InvalidArguments:
        return InvalidArguments(
            f"task {self._task!r}, argument {argument!r}: {text}",
            task=self._task,
            argument=argument,
        )


class BatchArguments(Arguments):
    """The signature of a batch handler, which takes a list, as the schema of one item's payload."""

    def __init__(self, function: Callable[..., Any], *, task: str) -> None:
        super().__init__(function, task=task)
        kinds = [one.kind for one in self._signature.parameters.values()]
        if kinds not in ([Parameter.POSITIONAL_OR_KEYWORD], [Parameter.POSITIONAL_ONLY]):
            raise Invalid(f"task {task!r} gets a batch: it takes one argument, a list", task=task)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return {name: _item_kind(kind) for name, kind in _resolved(self._function).items()}


def _item_kind(kind: Any) -> Any:
    """The type of the items of a list, or of a list or None; `Any` for every other type."""
    if get_origin(kind) in {Union, UnionType}:
        kind = next((one for one in get_args(kind) if get_origin(one) is list), Any)
    return get_args(kind)[0] if get_origin(kind) is list else Any


def _result_kind(kind: Any) -> Any:
    """The type of a result: the return annotation without `HandlerAnswer`s."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    kinds = [
        one
        for one in get_args(kind)
        if not (isinstance(one, type) and issubclass(one, HandlerAnswer))
    ]
    return Union[tuple(kinds)]  # noqa: UP007 - built at run time


def _resolved(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; those that cannot be resolved are `Any`."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a name is imported for type checkers only
        return {name: _one_hint(function, name) for name in inspect.get_annotations(function)}


def _one_hint(function: Callable[..., Any], name: str) -> Any:
    annotations = {name: inspect.get_annotations(function)[name]}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        alone = SimpleNamespace(__annotations__=annotations)
        return get_type_hints(alone, globalns=names, include_extras=True)[name]
    except Exception:  # noqa: BLE001 - as above
        return Any


def _field(parameter: Parameter, hints: dict[str, Any]) -> tuple[str, Any, Any]:
    kind = hints.get(parameter.name, Any)
    if not can_decode(kind):
        kind = Any
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return parameter.name, GenericAlias(tuple, (kind, ...)), ()
    if parameter.kind is Parameter.VAR_KEYWORD:
        named = GenericAlias(dict, (str, kind))
        return parameter.name, named, msgspec.field(default_factory=dict)
    default = parameter.default
    if default is Parameter.empty:
        return parameter.name, kind, msgspec.NODEFAULT
    if isinstance(default, _IMMUTABLE):
        return parameter.name, kind, default
    return parameter.name, kind, msgspec.field(default_factory=lambda: default)


# --- keys -----------------------------------------------------------------------------------------

_FIRST_NAME = re.compile(r"[^.\[]*")  # of a field such as `user.id` or `user[id]`


def has_templates(task: NewTask) -> bool:
    """Whether a key of the task, such as those of its limits, has to be filled."""
    return any("{" in key or "}" in key for key in _keys(task))


def check_templates(task: NewTask, names: Iterable[str]) -> None:
    """Refuse keys that name something other than the parameters of the task."""
    known = [*names]
    for key in _keys(task):
        try:
            fields = [*_fields(key)]
        except ValueError as error:
            raise Invalid(
                f"task {task.name!r}: the key {key!r} is not a valid template: {error}; "
                "write {{ and }} for braces that are part of the key",
                task=task.name,
            ) from None
        for field in fields:
            if field not in known:
                there = ", ".join(known) if known else "no parameters"
                raise Invalid(
                    f"task {task.name!r}: the key {key!r} names {field!r}, which is not a "
                    f"parameter of the task; it has: {there}",
                    task=task.name,
                )


def with_filled_keys(task: NewTask, arguments: Mapping[str, Any]) -> NewTask:
    """The task with its keys filled from the arguments of a call."""

    def fill(given: Any) -> Any:
        if given is None or getattr(given, "key", "") is None:
            return given
        if isinstance(given, str):
            return _filled(task.name, given, arguments)
        if isinstance(given, list):
            return [fill(one) for one in given]
        return msgspec.structs.replace(given, key=_filled(task.name, given.key, arguments))

    return msgspec.structs.replace(
        task,
        concurrency=fill(task.concurrency),
        rate=fill(task.rate),
        fair_key=fill(task.fair_key),
        unique=fill(task.unique),
        debounce=fill(task.debounce),
    )


def _filled(task: str, template: str, arguments: Mapping[str, Any]) -> str:
    try:
        key = template.format_map(arguments)
    except Exception as error:  # noqa: BLE001 - users' types format themselves
        raise InvalidArguments(
            f"task {task!r}: the key {template!r} cannot be filled: {error!r}", task=task
        ) from None
    if not 1 <= len(key) <= limits.MAX_LIMIT_KEY_LENGTH:
        most = limits.MAX_LIMIT_KEY_LENGTH
        raise InvalidArguments(
            f"task {task!r}: the key {template!r} has to become a text of 1 to {most} characters, "
            f"not of {len(key)}",
            task=task,
        )
    return key


def _keys(task: NewTask) -> list[str]:
    """The keys of a task that may be templates."""
    keys: list[str | None] = [one.key for one in named_limits(task.concurrency, task.rate)]
    keys.append(task.fair_key)
    keys += [one.key for one in (task.unique, task.debounce) if one is not None]
    return [key for key in keys if key is not None]


def _fields(template: str) -> Iterator[str]:
    """The names that a template begins its fields with."""
    for _, field, form, _ in string.Formatter().parse(template):
        if field is not None:
            found = _FIRST_NAME.match(field)
            yield found[0] if found else ""
        if form:
            yield from _fields(form)
