"""The Django app, which brings `manage.py rota_worker` and the system checks."""

from django.apps import AppConfig  # type: ignore[import-untyped]  # Django has no types


class RotaConfig(AppConfig):  # type: ignore[misc]  # as above
    name = "rota.contrib.django"
    label = "rota"
    verbose_name = "Rota"

    def ready(self) -> None:
        from rota.contrib.django import checks  # noqa: F401, PLC0415 - registers them
