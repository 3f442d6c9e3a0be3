"""The app: a `Rota` app with the constructor, the decorator and the settings of Celery."""

import fnmatch
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from rota.compat.celery.beat import PeriodicCall, entries_of
from rota.compat.celery.canvas import Signature
from rota.compat.celery.configuration import SETTINGS, Configuration
from rota.compat.celery.results import AsyncResult
from rota.compat.celery.task import CeleryApp, CeleryTask
from rota.errors import Invalid
from rota.sdk.app.app import Rota
from rota.sdk.options.other_names import options_of_apply_async

if TYPE_CHECKING:
    from rota.sdk.schedules.declared import DeclaredSchedule
    from rota.sdk.task import Task

Receiver = Callable[..., Any]
Connected = TypeVar("Connected", bound=Receiver)
ADDRESSES = ("http://", "https://", "sqlite://")
NO_BROKER = (
    "there is no broker: {given!r} cannot be used. Give the address of the coordinator, such as "
    "http://127.0.0.1:7070, or leave it out and set ROTA_URL"
)

_shared: "dict[str, SharedTask]" = {}


class Receivers:
    """`app.on_after_configure`: functions that add periodic tasks when the app is complete."""

    def __init__(self) -> None:
        self.functions: list[Receiver] = []

    def connect(self, function: Connected, **_: Any) -> Connected:
        self.functions.append(function)
        return function


class Celery(Rota, CeleryApp):
    """An app with Celery's interface. Its worker is `rota worker MODULE:APP`.

    `broker` is the address of the coordinator, if it is not that of `ROTA_URL`.
    """

    current: "ClassVar[Celery | None]" = None  # the app that was created last

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,  # noqa: ARG002 - results are kept without one
        include: Sequence[str] = (),
        token: str | None = None,
        **settings: Any,
    ) -> None:
        self._modules: list[str] = []
        self._discoveries: list[tuple[Sequence[str] | None, str | None]] = []
        self._is_completing = False
        self._celery_tasks: dict[str, Task[..., Any]] = {}
        super().__init__(_address(broker), token, name=main)
        self.main = main
        self.conf = Configuration()
        self.conf.update(settings)
        self.conf.update({"include": tuple(include)})
        self.on_after_configure = self.on_after_finalize = Receivers()
        self._periodic: list[PeriodicCall] = []
        self._declared_beat: set[str] = set()
        Celery.current = self

    # --- tasks --------------------------------------------------------------------------------

    @property
    def tasks(self) -> "dict[str, Task[..., Any]]":
        """The tasks by name, with those of announced modules and of `shared_task`."""
        self._complete()
        return self._celery_tasks

    @tasks.setter
    def tasks(self, tasks: "dict[str, Task[..., Any]]") -> None:
        self._celery_tasks = tasks

    @overload  # type: ignore[override]  # the options are those of Celery
    def task(self, function: Callable[..., Any], /, **options: Any) -> CeleryTask: ...
    @overload
    def task(self, /, **options: Any) -> Callable[[Callable[..., Any]], CeleryTask]: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(bind=True, max_retries=5)`."""
        if function is not None:
            return self.add_function(function, options)
        return lambda function: self.add_function(function, options)

    def add_function(self, function: Callable[..., Any], options: Mapping[str, Any]) -> CeleryTask:
        """Add a task, unless the app has one of that name; that one is returned then."""
        if not callable(function):
            raise Invalid("@app.task decorates a function; its options are given by name")
        given = dict(options)
        name = given.pop("name", None) or f"{function.__module__}.{function.__name__}"
        known = self._celery_tasks.get(name)
        if isinstance(known, CeleryTask):
            return known
        made = CeleryTask(self, function, name=name, given=given)
        self._celery_tasks[name] = made
        return made

    def options_for(self, name: str) -> dict[str, Any]:
        """The options that the settings give a task: its queue, priority and time limit."""
        wanted = {
            "queue": self.conf.task_default_queue,
            "priority": self.conf.task_default_priority,
            "time_limit": self.conf.task_time_limit,
        }
        for pattern, route in _routes(self.conf.task_routes):
            if fnmatch.fnmatchcase(name, pattern):
                wanted |= route
                break
        return options_of_apply_async(wanted)

    @property
    def is_eager(self) -> bool:
        return bool(self.conf.task_always_eager)

    @property
    def raises_eager_errors(self) -> bool:
        return bool(self.conf.task_eager_propagates)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Enqueue a task by name, also one that another program defines."""
        known = self.tasks.get(name)
        if isinstance(known, CeleryTask):
            return known.apply_async(args, kwargs, **options)
        if args:
            raise Invalid(
                f"send_task: this program does not know {name!r}, so its arguments are given by "
                "name: kwargs={…}",
                task=name,
            )
        wanted: Any = {**self.options_for(name), **options_of_apply_async(options)}
        return AsyncResult(self.enqueue(name, dict(kwargs or {}), **wanted))

    def signature(self, name: str, *args: Any, **options: Any) -> Signature:
        """A signature of a task of this app, by name."""
        task = self.tasks.get(name)
        if not isinstance(task, CeleryTask):
            known = ", ".join(sorted(self.tasks)) or "none"
            raise Invalid(f"this app has no task {name!r}; it has: {known}", task=name)
        return task.signature(*args, **options)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 - Celery's name
        """The result of a task with a known id."""
        return AsyncResult(self.handle(task_id))

    # --- settings and modules -----------------------------------------------------------------

    def config_from_object(self, source: Any, *, namespace: str | None = None) -> None:
        """Take settings from an object, a module or its name, such as `django.conf:settings`.

        With a namespace, settings have its name in front, in capitals: `CELERY_TIMEZONE`.
        """
        found = _imported(source) if isinstance(source, str) else source
        prefix = "" if namespace is None else f"{namespace}_"
        names = {(prefix + name).upper() if namespace else name: name for name in SETTINGS}
        values = {ours: _value_of(found, theirs) for theirs, ours in names.items()}
        given = {name: value for name, value in values.items() if value is not None}
        broker = given.get("broker_url")
        if broker is not None:
            self._connection.url = _address(broker)
        self.conf.update(given)

    def autodiscover_tasks(
        self, packages: Sequence[str] | None = None, related_name: str | None = "tasks"
    ) -> None:
        """Import the module `tasks` of each package before the first task is needed.

        Without packages, they are the installed apps of Django.
        """
        self._discoveries.append((packages, related_name))

    def _complete(self) -> None:
        """Import what was announced, once. The modules add their tasks while this runs."""
        if self._is_completing:
            return
        self._is_completing = True
        try:
            while self._discoveries:
                packages, related = self._discoveries.pop()
                self._modules += _task_modules(packages, related)
            modules, self._modules = [*self._modules, *self._included()], []
            for module in modules:
                importlib.import_module(module)
            for shared in list(_shared.values()):
                if Celery.current is self:
                    self.add_function(shared.function, {**shared.options, "name": shared.name})
        finally:
            self._is_completing = False

    def _included(self) -> list[str]:
        if "conf" not in vars(self):  # inside the constructor
            return []
        return [*(self.conf.include or ()), *(self.conf.imports or ())]

    # --- periodic tasks -----------------------------------------------------------------------

    @property
    def schedules(self) -> "dict[str, DeclaredSchedule]":
        """The schedules of the app, with those of `beat_schedule` and `add_periodic_task`."""
        receivers, self.on_after_configure.functions = self.on_after_configure.functions, []
        for receiver in receivers:
            receiver(sender=self)
        for entry in [*entries_of(self.conf.beat_schedule or {}), *self._periodic]:
            if entry.name not in self._declared_beat:
                self._declare(entry)
        return self._schedules.declared

    def add_periodic_task(
        self,
        schedule: Any,
        sig: Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Run a call by a schedule: seconds, a timedelta, or `crontab(…)`."""
        call = sig.clone(args, kwargs)
        entry = PeriodicCall(
            name or repr(call),
            sig.task,
            schedule,
            call.args,
            call.kwargs,
            {**sig.options, **options},
        )
        self._periodic.append(entry)
        return entry.name

    def _declare(self, entry: PeriodicCall) -> None:
        task = self.tasks.get(entry.task)
        if not isinstance(task, CeleryTask):
            known = ", ".join(sorted(self.tasks)) or "none"
            raise Invalid(
                f"periodic task {entry.name!r}: no task {entry.task!r}; there are: {known}",
                schedule=entry.name,
            )
        cron, timing = entry.timing(self.conf.timezone)
        given: Any = {**timing, "name": entry.name, "args": entry.args, "kwargs": entry.kwargs}
        self._schedules.add(task.using_celery(entry.options), cron, given)
        self._declared_beat.add(entry.name)


class SharedTask:
    """What `@shared_task` returns: the task of that name in the current app."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        given = dict(options)
        self.function = function
        self.name = given.pop("name", None) or f"{function.__module__}.{function.__name__}"
        self.options = given
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._task(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    @property
    def _task(self) -> CeleryTask:
        return current_app().add_function(self.function, {**self.options, "name": self.name})


@overload
def shared_task(function: Callable[..., Any], /, **options: Any) -> SharedTask: ...
@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], SharedTask]: ...


def shared_task(*args: Any, **options: Any) -> Any:
    """Make a task of a function for the app that the program creates, before or afterwards."""

    def add(function: Callable[..., Any]) -> SharedTask:
        if not callable(function):
            raise Invalid("@shared_task decorates a function; its options are given by name")
        made = SharedTask(function, options)
        _shared[made.name] = made
        return made

    return add(args[0]) if args else add


def current_app() -> Celery:
    """The app that was created last."""
    if Celery.current is None:
        raise Invalid('there is no app yet: create one with app = Celery("shop")')
    return Celery.current


def _address(broker: str | None) -> str | None:
    if broker is not None and not broker.startswith(ADDRESSES):
        raise Invalid(NO_BROKER.format(given=_without_secrets(broker)), field="broker")
    return broker


def _without_secrets(address: str) -> str:
    scheme, _, rest = address.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in rest else address


def _routes(routes: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    if not isinstance(routes, Mapping):
        raise Invalid("task_routes is a mapping of names or patterns to {'queue': …}")
    for pattern, route in routes.items():
        yield pattern, {"queue": route} if isinstance(route, str) else dict(route)


def _imported(source: str) -> Any:
    module, _, attribute = source.partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def _value_of(source: Any, name: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


def _task_modules(packages: Sequence[str] | None, related: str | None) -> list[str]:
    """The modules with tasks that exist in the packages."""
    if packages is None:
        packages = _installed_apps()
    modules = [f"{package}.{related}" if related else package for package in packages]
    return [one for one in modules if _exists(one)]


def _installed_apps() -> list[str]:
    try:
        from django.apps import apps  # type: ignore[import-untyped]  # noqa: PLC0415 - if it is there
    except ImportError:
        raise Invalid("autodiscover_tasks: name the packages, or install Django") from None
    return [one.name for one in apps.get_app_configs()]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
