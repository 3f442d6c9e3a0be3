"""The schedules of one app: those that its code has, under the name that the app is known by."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rota.errors import Invalid
from rota.sdk.client.requests import Exchange

if TYPE_CHECKING:
    from rota.messages.schedules import ScheduleSyncView
    from rota.sdk.schedules.declared import DeclaredSchedule, ScheduleOptions


class AppSchedules:
    """Collects the schedules of an app, and deploys them together."""

    def __init__(self, source: str | None) -> None:
        """`source` is the name of the app; None: that of the first scheduled target's module."""
        self.declared: dict[str, DeclaredSchedule] = {}
        self._source = source

    def add(self, target: Any, cron: Sequence[str], options: "ScheduleOptions") -> None:
        """Give a task or a workflow a schedule, if its name is free."""
        from rota.sdk.schedules.declared import declare, source_of  # noqa: PLC0415 - few need it

        declared = declare(target, cron, options)
        if declared.name in self.declared:
            raise Invalid(
                f"there is a schedule named {declared.name!r} already; give one of them "
                "another name: @app.schedule(…, name=…)",
                schedule=declared.name,
            )
        self._source = self._source or source_of(target)
        self.declared[declared.name] = declared

    def deploying(self) -> "Exchange[ScheduleSyncView]":
        """The calls that make the schedules at the coordinator those of the code."""
        from rota.sdk.schedules.declared import deploy  # noqa: PLC0415 - as above

        assert self._source is not None, "set with the first schedule"
        return deploy(self._source, self.declared.values())
