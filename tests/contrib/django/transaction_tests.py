"""A task that is enqueued in a transaction exists if and only if that is committed."""

from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction  # type: ignore[import-untyped]  # no types

from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.task_api import TaskResultDoesNotExist
from rota.contrib.django.worker import DjangoWorker
from tests.contrib.django.site import tasks
from tests.contrib.django.waiting import finished


class Undone(Exception):  # noqa: N818 - rolls a transaction back
    pass


def test_a_task_takes_effect_with_the_commit(
    backend: RotaBackend, worker: DjangoWorker, signals: list[Any]
) -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(result.id)
        assert signals == []

    assert finished(backend, result).return_value == 3
    assert ("task_enqueued", result.id, "READY") in signals


def test_a_task_that_is_rolled_back_never_exists(
    backend: RotaBackend, worker: DjangoWorker, signals: list[Any]
) -> None:
    with transaction.atomic():
        with suppress(Undone), transaction.atomic():
            undone = tasks.add.enqueue(1)
            raise Undone
        kept = tasks.add.enqueue(2)
    with suppress(Undone), transaction.atomic():
        lost = tasks.add.enqueue(3)
        raise Undone

    assert finished(backend, kept).return_value == 2
    for result in (undone, lost):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(result.id)
    assert [one for one in signals if one[0] == "task_enqueued"] == [
        ("task_enqueued", kept.id, "READY")
    ]


def test_async_code_inside_a_transaction_belongs_to_it(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    with suppress(Undone), transaction.atomic():
        result = async_to_sync(tasks.add.aenqueue)(1)
        raise Undone

    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result.id)


def test_outside_of_a_transaction_a_task_is_enqueued_at_once(
    backend: RotaBackend, worker: DjangoWorker
) -> None:
    result = tasks.add.enqueue(1)

    assert not connection.in_atomic_block
    assert backend.get_result(result.id).id == result.id


def test_a_transaction_that_is_ignored_does_not_keep_a_task_back(
    worker: DjangoWorker,
) -> None:
    options = {"transaction": "ignore"}
    backend = RotaBackend("default", {"QUEUES": ["default"], "OPTIONS": options})

    with transaction.atomic():
        result = backend.enqueue(tasks.add, [1], {})
        assert backend.get_result(result.id).id == result.id
