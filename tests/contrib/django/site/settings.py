"""The settings of a small Django project. The coordinator is that of ROTA_URL."""

import os

import django  # type: ignore[import-untyped]  # Django has no types

SECRET_KEY = "not one"
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "tests.contrib.django.site.urls"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["django.contrib.contenttypes", "rota.contrib.django"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
POSTGRES = os.environ.get("SITE_POSTGRES_NAME")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql" if POSTGRES else "django.db.backends.sqlite3",
        "NAME": POSTGRES or os.environ.get("SITE_DATABASE", ":memory:"),
        "USER": os.environ.get("SITE_POSTGRES_USER", ""),
        "PASSWORD": os.environ.get("SITE_POSTGRES_PASSWORD", ""),
        "HOST": os.environ.get("SITE_POSTGRES_HOST", ""),
        "PORT": os.environ.get("SITE_POSTGRES_PORT", ""),
    }
}
OPTIONS: dict[str, object] = {"task_options": {"backoff": {"kind": "none"}}}
if POSTGRES:
    OPTIONS |= {"transaction": "inbox", "schema": os.environ["SITE_SCHEMA"]}
TASKS = {
    "default": {
        "BACKEND": "rota.contrib.django.RotaBackend",
        "QUEUES": ["default", "mail", "other"],
        "OPTIONS": OPTIONS,
    }
}
