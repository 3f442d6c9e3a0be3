"""What is a worker handed? A `HeldShard`: which one, under which epoch, and whether still."""

from collections.abc import Callable
from typing import Any

import msgspec

from rota.core.shards.holding import Holding
from rota.errors import StaleEpoch
from rota.messages.shards import CheckpointView, ShardClaim
from rota.sdk.client import Client
from rota.sdk.requests import Call
from rota.sdk.shards import calls


class HeldShard:
    """A shard in this worker's hands. All callbacks about one grant are given the same value.

    `epoch` rises whenever the shard is granted, so an effect that carries it can be refused when it
    comes too late. Ask `is_held` before each effect on the outside, and hand `epoch` along with it
    where whoever takes it can compare.
    """

    __slots__ = ("_connect", "_holding", "_is_given_up", "_now_ms", "epoch", "service", "shard")

    def __init__(
        self,
        holding: Holding,
        shard: int,
        epoch: int,
        *,
        now_ms: Callable[[], int],
        connect: Callable[[], Client],
    ) -> None:
        self.service = holding.applicant.service
        self.shard = shard
        self.epoch = epoch
        self._holding = holding
        self._now_ms = now_ms
        self._connect = connect
        self._is_given_up = False

    def __repr__(self) -> str:
        return f"<shard {self.shard} of {self.service!r} under epoch {self.epoch}>"

    @property
    def is_held(self) -> bool:
        """Whether the shard is ours at this very moment.

        Found by the clock and not by what has been noticed so far: a process that was stopped and
        goes on knows at once that its time was over.
        """
        holding = self._holding
        return (
            not self._is_given_up
            and holding.is_acting(self.shard, self._now_ms())
            and holding.epoch_of(self.shard) == self.epoch
        )

    @property
    def claim(self) -> ShardClaim:
        """In whose name a task was done, for whoever reports its result by hand.

        `ResultItem(task_id=…, fence=…, ok=True, shard=held.claim)`, sent with
        `rota.sdk.calls.report_results`, is taken only if the shard is still this worker's under
        this epoch; the outcome is `stale_epoch` if not. Handlers of `Worker` have no shard.
        """
        return ShardClaim(service=self.service, shard=self.shard, epoch=self.epoch)

    # --- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> Any:
        """What was last saved for the shard, by whoever held it then; None: nothing yet.

        Read when the shard was assigned, it is final: nobody before us can save any more.
        """
        return _value_of(self._connect().run(self._question()))

    def save(self, value: Any) -> None:
        """Keep how far we have come, any JSON. `StaleEpoch`: the shard is no longer ours."""
        call = self._saving(value)
        self._connect().run(call)

    async def acheckpoint(self) -> Any:
        """Like `checkpoint`, on the event loop."""
        return _value_of(await self._connect().arun(self._question()))

    async def asave(self, value: Any) -> None:
        """Like `save`, on the event loop."""
        call = self._saving(value)
        await self._connect().arun(call)

    def _question(self) -> Call[CheckpointView]:
        return calls.get_checkpoint(self.service, self.shard)

    def _saving(self, value: Any) -> Call[CheckpointView]:
        if not self.is_held:
            # Nobody else may have the shard yet, but we are not to act on it any more.
            raise StaleEpoch(self.service, self.shard, epoch=self.epoch)
        return calls.save_checkpoint(self.service, self.shard, epoch=self.epoch, value=value)

    # --- for the seats --------------------------------------------------------------------------

    def give_up(self) -> None:
        """Not ours any more, whatever the lease says."""
        self._is_given_up = True


def _value_of(view: CheckpointView) -> Any:
    return None if not view.value else msgspec.json.decode(view.value)
