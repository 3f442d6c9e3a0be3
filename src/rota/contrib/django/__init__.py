"""Rota as a backend of `django.tasks`, and `manage.py rota_worker`.

    INSTALLED_APPS = [..., "rota.contrib.django"]
    TASKS = {
        "default": {
            "BACKEND": "rota.contrib.django.RotaBackend",
            "OPTIONS": {"url": "http://127.0.0.1:7070"},
        }
    }

Django imports this package before its apps are ready, so the names are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.contrib.django.backend import RotaBackend as RotaBackend
    from rota.contrib.django.registry import task_options as task_options

_HOMES = {
    "RotaBackend": "rota.contrib.django.backend",
    "task_options": "rota.contrib.django.registry",
}

__all__ = ["RotaBackend", "task_options"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
