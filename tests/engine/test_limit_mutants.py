"""Broken rules of flow control: each has to be found by a test that holds without it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rota.core.flows import rates
from rota.core.flows.fair_queue import Tenant
from rota.core.ids import TaskId
from rota.engine.dispatch import fair_picker
from rota.engine.working_set.flow_admission import FlowAdmission
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_limits import HeldLimits
from rota.engine.working_set.held_tenants import HeldTenants
from rota.store.tasks.flows import FlowStore
from tests.engine import test_limits, test_queue_settings, test_rates, test_tenants
from tests.engine.running import Engine

pytestmark = pytest.mark.only("sqlite")

Broken = Callable[[], Any]
MUTANTS: dict[str, tuple[Broken, Callable[..., Awaitable[None]]]] = {}


def mutant(found_by: Callable[..., Awaitable[None]]) -> Callable[[Broken], Broken]:
    def add(broken: Callable[[], Iterator[None]]) -> Broken:
        MUTANTS[broken.__name__] = contextmanager(broken), found_by
        return broken

    return add


@mutant(test_limits.test_no_more_tasks_of_a_key_run_than_its_limit_allows)
def slot_not_taken() -> Iterator[None]:
    with patch.object(HeldLimits, "note_started", lambda *_, **__: None):
        yield


@mutant(test_limits.test_a_cancelled_attempt_has_its_slot_until_its_worker_lets_go)
def slot_free_while_a_cancelled_attempt_runs() -> Iterator[None]:
    with patch.object(HeldFlows, "note_lingering", lambda *_: None):
        yield


@mutant(test_limits.test_the_slots_of_a_worker_that_is_gone_are_free)
def slot_leaked_on_cancel() -> Iterator[None]:
    with patch.object(HeldFlows, "note_let_go", lambda *_, **__: None):
        yield


@mutant(test_limits.test_a_slot_is_kept_through_back_off_where_the_task_holds_it)
def slot_returned_between_attempts() -> Iterator[None]:
    with patch.object(HeldLimits, "note_waiting", HeldLimits.note_finished):
        yield


@mutant(test_limits.test_a_slot_that_is_kept_through_back_off_is_kept_over_a_restart)
def kept_slot_forgotten_by_a_restart() -> Iterator[None]:
    with patch.object(FlowStore, "kept_slots", lambda _: []):
        yield


@mutant(test_limits.test_a_wake_up_is_not_lost_in_a_lane_without_workers)
def wake_up_lost_in_a_lane_without_workers() -> Iterator[None]:
    wake = FlowAdmission._wake_lane

    def first_only(self: FlowAdmission, key: str, lane: int, most: int) -> None:
        if lane == max(self.blocked.get(key, {lane: None})):
            wake(self, key, lane, most)

    with patch.object(FlowAdmission, "_wake_lane", first_only):
        yield


@mutant(test_limits.test_room_that_one_flow_cannot_use_goes_to_the_next)
def room_not_passed_on() -> Iterator[None]:
    with patch.object(FlowAdmission, "_pass_on", lambda *_: None):
        yield


@mutant(test_tenants.test_tenants_take_turns_however_much_one_of_them_has)
def virtual_time_not_advanced() -> Iterator[None]:
    with patch.object(Tenant, "charge", lambda *_: None):
        yield


@mutant(test_tenants.test_a_tenant_saves_up_no_time_while_it_has_no_work)
def time_saved_up() -> Iterator[None]:
    def joined(_: HeldTenants, tenant: Tenant) -> None:
        tenant.flows += 1

    with patch.object(HeldTenants, "join", joined):
        yield


@mutant(test_rates.test_single_tasks_of_many_flows_follow_each_other_at_the_rate)
def opening_forgotten() -> Iterator[None]:
    def leased(self: HeldFlows, tasks: Iterable[Any], *, now_ms: int) -> None:
        for task in tasks:
            spec = self.numbers.specs[task.flow][1]
            self.limits.note_started(task.id, spec, now_ms=now_ms)

    with (
        patch.object(HeldFlows, "note_leased", leased),
        patch.object(FlowAdmission, "wake", lambda *_, **__: None),
    ):
        yield


@mutant(test_rates.test_starts_of_a_rate_are_spaced_evenly)
def start_not_counted() -> Iterator[None]:
    with patch.object(rates, "start", lambda *_, **__: None):
        yield


@mutant(test_limits.test_a_limit_that_is_raised_lets_waiting_tasks_start)
def raised_limit_wakes_nothing() -> Iterator[None]:
    with patch.object(FlowAdmission, "wake", lambda *_, **__: None):
        yield


@mutant(test_queue_settings.test_a_queue_runs_no_more_than_it_may)
def queue_never_closed() -> Iterator[None]:
    def never(_: fair_picker.FairPicker, _queue: str) -> bool:
        return False

    with patch.object(fair_picker.FairPicker, "_is_closed", never):
        yield


@mutant(test_limits.test_a_retried_task_is_limited_again)
def slot_kept_for_ever() -> Iterator[None]:
    def kept(_: HeldLimits, _task_id: TaskId) -> list[str]:
        return []

    with patch.object(HeldLimits, "note_finished", kept):
        yield


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_broken_rule_is_found(name: str, engine: Engine, tmp_path: Path) -> None:
    broken, test = MUTANTS[name]
    offered = {"engine": engine, "clock": engine.clock, "tmp_path": tmp_path}
    given = {name: one for name, one in offered.items() if name in test.__annotations__}

    with broken(), pytest.raises(AssertionError):
        await test(**given)

    # What it has done to the working set is no part of the check at the end of the test.
    engine.coordinator.leading.pipeline._held._is_certain = False
