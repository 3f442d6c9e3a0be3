"""The `HeldShard` that callbacks get: a shard, its epoch, and whether it is still held."""

from collections.abc import Callable
from typing import Any

import msgspec

from rota.core.shards.member_client import MemberClient
from rota.errors import StaleEpoch
from rota.messages.shards import CheckpointView, ShardClaim
from rota.sdk.client import service_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall


class HeldShard:
    """A shard that this worker holds. All callbacks about one grant get the same object.

    `epoch` rises with every grant of the shard, so a receiver can refuse an effect that carries an
    old epoch. Check `is_held` before each effect outside, and send `epoch` along where the receiver
    can compare it.
    """

    __slots__ = ("_connect", "_is_given_up", "_member", "_now_ms", "epoch", "service", "shard")

    def __init__(
        self,
        member: MemberClient,
        shard: int,
        epoch: int,
        *,
        now_ms: Callable[[], int],
        connect: Callable[[], Client],
    ) -> None:
        self.service = member.applicant.service
        self.shard = shard
        self.epoch = epoch
        self._member = member
        self._now_ms = now_ms
        self._connect = connect
        self._is_given_up = False

    def __repr__(self) -> str:
        return f"<shard {self.shard} of {self.service!r} under epoch {self.epoch}>"

    @property
    def is_held(self) -> bool:
        """Whether this worker holds the shard at this moment.

        It reads the clock, so a process that was suspended knows at once that its lease is over.
        """
        member = self._member
        return (
            not self._is_given_up
            and member.is_acting(self.shard, self._now_ms())
            and member.epoch_of(self.shard) == self.epoch
        )

    @property
    def claim(self) -> ShardClaim:
        """The claim for a program that reports the result of a task by itself.

        The coordinator takes `ResultItem(task_id=…, fence=…, ok=True, shard=held.claim)`, sent with
        `rota.sdk.client.calls.report_results`, only if this worker still holds the shard under this
        epoch; otherwise the outcome is `stale_epoch`. Handlers of `Worker` have no shard.
        """
        return ShardClaim(service=self.service, shard=self.shard, epoch=self.epoch)

    def checkpoint(self) -> Any:
        """The value that the last holder of the shard saved; None: nothing yet.

        Read after the assignment it is final: no earlier holder can save any more.
        """
        return _value_of(self._connect().run(self._get_call()))

    async def acheckpoint(self) -> Any:
        """As `checkpoint`, for async code."""
        return _value_of(await self._connect().arun(self._get_call()))

    def save(self, value: Any) -> None:
        """Save how far the work has come, as JSON; `StaleEpoch` when the shard is not held."""
        call = self._save_call(value)
        self._connect().run(call)

    async def asave(self, value: Any) -> None:
        """As `save`, for async code."""
        call = self._save_call(value)
        await self._connect().arun(call)

    def _get_call(self) -> ApiCall[CheckpointView]:
        return service_calls.get_checkpoint(self.service, self.shard)

    def _save_call(self, value: Any) -> ApiCall[CheckpointView]:
        if not self.is_held:
            # No other worker may hold the shard yet, but this one may not act on it any more.
            raise StaleEpoch(self.service, self.shard, epoch=self.epoch)
        return service_calls.save_checkpoint(
            self.service, self.shard, epoch=self.epoch, value=value
        )

    def give_up(self) -> None:
        """Make `is_held` false, whatever is left of the lease; called by the slots."""
        self._is_given_up = True


def _value_of(view: CheckpointView) -> Any:
    return None if not view.value else msgspec.json.decode(view.value)
