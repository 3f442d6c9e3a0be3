"""`app.conf`: Celery's settings, and what each of them means here.

A setting is applied, has no effect because Rota always or never behaves so, or is refused because
code relies on it and would not get what it says. An unknown name is an error, too.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rota.errors import Invalid, did_you_mean

Effect = Literal["applied", "no effect", "refused"]
JSON_ONLY = ("json", "application/json")


class Setting(NamedTuple):
    effect: Effect
    note: str


SETTINGS: dict[str, Setting] = {
    # Where the coordinator is
    "broker_url": Setting("applied", "the address of the coordinator; `ROTA_URL` if it is not set"),
    "result_backend": Setting("no effect", "every result is kept by the coordinator"),
    "result_expires": Setting("no effect", "`history_keep_ms` of the coordinator"),
    "result_extended": Setting("no effect", "the coordinator always keeps the arguments"),
    "broker_connection_retry_on_startup": Setting("no effect", "workers always try again"),
    "broker_pool_limit": Setting("no effect", "connections are shared"),
    "broker_transport_options": Setting("no effect", "there is no visibility timeout"),
    # Tasks
    "task_default_queue": Setting("applied", "the queue of tasks that name none"),
    "task_default_priority": Setting("applied", "higher numbers first"),
    "task_routes": Setting("applied", "a mapping of names or patterns to `{'queue': …}`"),
    "task_time_limit": Setting("applied", "seconds; the time-out of an attempt"),
    "task_always_eager": Setting("applied", "calls run at once, here; see also `rota.testing`"),
    "task_eager_propagates": Setting("applied", "errors of eager calls are raised"),
    "task_soft_time_limit": Setting(
        "refused", "use `task_time_limit`; a handler asks `rota.current().check_cancelled()`"
    ),
    "task_default_rate_limit": Setting(
        "refused", "give tasks `rate=Rate(…)`, which holds for all workers together"
    ),
    "task_annotations": Setting("refused", "give the options to the tasks"),
    "task_acks_late": Setting("no effect", "a task always ends when its handler has ended"),
    "task_reject_on_worker_lost": Setting("no effect", "tasks of a lost worker run again"),
    "task_track_started": Setting("no effect", "the state of a task is always known"),
    "task_ignore_result": Setting("no effect", "results are always kept"),
    "task_store_errors_even_if_ignored": Setting("no effect", "errors are always kept"),
    "task_send_sent_event": Setting("no effect", "events are always written"),
    "task_create_missing_queues": Setting("no effect", "a queue exists when it is named"),
    "task_publish_retry": Setting("no effect", "the SDK sends a lost submission again"),
    "task_queues": Setting("no effect", "a queue exists when it is named"),
    "task_default_exchange": Setting("no effect", "there are no exchanges"),
    "task_default_routing_key": Setting("no effect", "there are no routing keys"),
    "task_protocol": Setting("no effect", "there is one"),
    "task_compression": Setting("no effect", "payloads are not compressed"),
    # Formats
    "task_serializer": Setting("applied", "`json` is the only one"),
    "result_serializer": Setting("applied", "`json` is the only one"),
    "accept_content": Setting("applied", "`json` is the only one"),
    "result_accept_content": Setting("applied", "`json` is the only one"),
    # Time
    "timezone": Setting("applied", "the time zone of `crontab` schedules; UTC if it is not set"),
    "enable_utc": Setting("no effect", "times are stored in UTC and carry their zone"),
    "beat_schedule": Setting("applied", "becomes schedules; workers deploy them"),
    "beat_scheduler": Setting("no effect", "the coordinator fires the schedules"),
    "beat_max_loop_interval": Setting("no effect", "the coordinator fires the schedules"),
    "beat_schedule_filename": Setting("no effect", "the coordinator stores the schedules"),
    # Workers: flags of `rota worker`
    "imports": Setting("applied", "modules with tasks, imported by the worker"),
    "include": Setting("applied", "as `imports`"),
    "worker_concurrency": Setting("no effect", "`rota worker --concurrency`"),
    "worker_prefetch_multiplier": Setting("no effect", "workers take what they can run"),
    "worker_max_tasks_per_child": Setting("no effect", "`rota worker --max-tasks`"),
    "worker_max_memory_per_child": Setting("no effect", "`rota worker --max-tasks`"),
    "worker_hijack_root_logger": Setting("no effect", "the root logger is left alone"),
    "worker_redirect_stdouts": Setting("no effect", "standard output is left alone"),
    "worker_send_task_events": Setting("no effect", "events are always written"),
    "worker_pool": Setting("no effect", "threads; `rota worker --processes` starts more processes"),
}
DEFAULTS: dict[str, Any] = {
    "beat_schedule": {},
    "task_routes": {},
    "imports": (),
    "include": (),
    "task_always_eager": False,
    "task_eager_propagates": False,
}
NO_PICKLE = "arguments and results are JSON: {name} may only be 'json'"


class Configuration:
    """Settings by attribute, as `app.conf` has them."""

    def __init__(self) -> None:
        self.__dict__["_values"] = dict(DEFAULTS)

    def __getattr__(self, name: str) -> Any:
        setting_of(name)
        return self._values.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Change settings; a setting that is refused or unknown changes nothing."""
        given = {**(values or {}), **more}
        for name, value in given.items():
            check(name, value)
        self.__dict__["_values"].update(given)


def setting_of(name: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        known = sorted(SETTINGS)
        raise Invalid(f"there is no setting {name!r}{did_you_mean(name, known)}", setting=name)
    return setting


def check(name: str, value: Any) -> None:
    """Refuse a value that would not have the effect that it asks for."""
    setting = setting_of(name)
    if setting.effect == "refused" and value:
        raise Invalid(f"{name} is not supported: {setting.note}", setting=name)
    if name.endswith(("_serializer", "accept_content")):
        given = (value,) if isinstance(value, str) else tuple(value)
        if not set(given) <= set(JSON_ONLY):
            raise Invalid(NO_PICKLE.format(name=name), setting=name)
