"""The tasks of this program, by backend and name. The name of a task is its module path.

A backend registers each task when Django makes it. A name that comes from the coordinator is looked
up here and never imported: a foreign name can only be unknown.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, Unpack

from django.apps import apps  # type: ignore[import-untyped]  # Django has no types
from django.conf import settings  # type: ignore[import-untyped]  # as above

from rota.contrib.django.task_api import DjangoTask, Task
from rota.errors import Invalid
from rota.sdk.task import Options, template_of

Function = TypeVar("Function", bound=Callable[..., Any])

TASKS_MODULE = "tasks"
# What Django says about a task, or for each call.
OF_DJANGO = {
    "queue": "give `queue_name` to @task, or to using()",
    "priority": "give `priority` to @task, or to using()",
    "run_at": "give `run_after` to using()",
    "run_at_ms": "give `run_after` to using()",
    "delay": "give `run_after` to using()",
    "delay_ms": "give `run_after` to using()",
    "key": "it is the id of the result",
}
_OPTIONS = "__rota_options__"

_tasks: dict[str, dict[str, DjangoTask]] = {}  # by the alias of their backend, then by name


def register(task: DjangoTask) -> None:
    """Register a task; a variant of it, made by `using`, changes nothing."""
    tasks = _tasks.setdefault(task.backend, {})
    known = tasks.get(task.module_path)
    if known is None or known.func is not task.func:
        tasks[task.module_path] = task


def tasks_of(alias: str) -> dict[str, DjangoTask]:
    """The tasks of a backend by name, after all modules that define tasks are imported."""
    import_tasks()
    return dict(_tasks.get(alias, {}))


def find(alias: str, name: str) -> DjangoTask | None:
    """The task with this name; None: no app of this program defines it."""
    known = _tasks.get(alias, {}).get(name)
    if known is None:
        import_tasks()
        known = _tasks.get(alias, {}).get(name)
    return known


def import_tasks() -> None:
    """Import the module `tasks` of every installed app, and of the project's own package."""
    packages = [config.name for config in apps.get_app_configs()]
    project = (getattr(settings, "ROOT_URLCONF", None) or "").rpartition(".")[0]
    for package in dict.fromkeys([*packages, project]):
        name = f"{package}.{TASKS_MODULE}"
        # Looked for first, so that an ImportError inside the module is not taken for its absence.
        if package and find_spec(name) is not None:
            import_module(name)


def task_options(**options: Unpack[Options]) -> Callable[[Function], Function]:
    """Give a task options of Rota, such as `max_attempts` and `timeout`. Goes below `@task`."""
    for name in options:
        if name in OF_DJANGO:
            raise Invalid(f"task_options does not take {name!r}: {OF_DJANGO[name]}", option=name)

    def decorate(function: Function) -> Function:
        if isinstance(function, Task):
            raise Invalid("@task_options goes below @task: it decorates the function")
        template_of(function.__name__, options)  # refuses options that are not valid
        setattr(function, _OPTIONS, options)
        return function

    return decorate


def options_of(task: DjangoTask) -> Options:
    """The options that `task_options` gave to the function of a task."""
    found: Options | None = getattr(task.func, _OPTIONS, None)
    return {} if found is None else found
