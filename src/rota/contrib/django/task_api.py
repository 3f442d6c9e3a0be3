"""The names of Django's task framework: of `django.tasks`, or of its backport `django_tasks`.

Django has the framework from version 6.0 on. Both have the same classes; some exceptions have other
names. This is the only module that knows which of the two is used. The types are those of the
backport, because Django has none.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import django  # type: ignore[import-untyped]  # Django has no types
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]  # as above

HAS_TASKS = django.VERSION >= (6, 0)
if not HAS_TASKS and find_spec("django_tasks") is None:
    raise ImproperlyConfigured(
        f"Django {django.get_version()} has no tasks of its own: install django-tasks, and add "
        '"django_tasks" to INSTALLED_APPS'
    )

if TYPE_CHECKING or not HAS_TASKS:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult
    from django_tasks.exceptions import (
        InvalidTaskError,
        TaskResultDoesNotExist,
    )
    from django_tasks.signals import task_enqueued, task_finished, task_started
else:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask as InvalidTaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

if TYPE_CHECKING:
    DjangoTask = Task[..., Any]
    DjangoResult = TaskResult[Any]
    TaskResultStatus: Any  # an enumeration of Django, whose members have no types
else:  # the classes of Django 6.0 take no parameters
    DjangoTask = Task
    DjangoResult = TaskResult
    if not HAS_TASKS:
        from django_tasks.base import TaskResultStatus

__all__ = [
    "BaseTaskBackend",
    "DjangoResult",
    "DjangoTask",
    "InvalidTaskError",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
