"""The settings. For more than a look: a secret key, and no DEBUG."""

import os
from pathlib import Path

import django

BASE = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "only for a look at the example")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"  # the default of Django 6
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE / "shop.sqlite3"),
    }
}

INSTALLED_APPS = ["shop", "rota.contrib.django"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {
    "default": {
        "BACKEND": "rota.contrib.django.RotaBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"url": os.environ.get("ROTA_URL", "http://127.0.0.1:7070")},
    }
}
