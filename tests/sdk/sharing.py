"""Shard workers that really run, and a diary of what their callbacks were called for."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota import HeldShard, ShardWorker
from rota.messages.shards import MemberView
from rota.sdk.client import service_calls
from rota.sdk.client.client import Client
from tests.sdk.serving import PATIENCE_S, Server

SERVICE = "feed"
LOOK_AGAIN_S = 0.02  # after so long; to look all the time would keep a processor busy


class ShardServer(Server):
    """A coordinator that speaks ZeroMQ too, and keeps that port as well when it comes back."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **{"zmq_port": 0, **settings})

    @property
    def shards_url(self) -> str:
        assert self.node.shards_url is not None
        return self.node.shards_url

    def restart(self) -> None:
        self._settings["zmq_port"] = int(self.shards_url.rpartition(":")[2])
        self.stop()
        self.start()

    def options(self, wire: str) -> dict[str, Any]:
        """How a worker reaches this server."""
        return {"url": self.url, "zmq": self.shards_url if wire == "zeromq" else ""}

    def members(self) -> dict[str, MemberView]:
        with Client.connect(self.url) as client:
            view = client.run(service_calls.get_service(SERVICE))
        return {member.worker_id: member for member in view.members}


def look_until(is_so: Callable[[], bool]) -> None:
    """Wait for what can only be seen by looking."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(LOOK_AGAIN_S)


class Diary:
    """What happened, from whichever thread, in order; and a way to wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.held: dict[str, HeldShard] = {}  # by the last line about each worker and shard
        self._changed = threading.Condition()

    def note(self, line: str, held: HeldShard | None = None) -> None:
        with self._changed:
            self.lines.append(line)
            if held is not None:
                self.held[line] = held
            self._changed.notify_all()

    def wait(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_S), self.lines

    def wait_for(self, *lines: str) -> None:
        self.wait(lambda: set(lines) <= set(self.lines))


def keeper(diary: Diary, worker_id: str, **options: Any) -> ShardWorker:
    """A worker with plain callbacks that note what they are called for."""

    def noting(what: str) -> Callable[[HeldShard], None]:
        return lambda held: diary.note(f"{worker_id} {what} {held.shard}", held)

    return ShardWorker(
        SERVICE,
        **{
            "shards": 4,
            "worker_id": worker_id,
            "on_assigned": noting("assigned"),
            "on_revoked": noting("revoked"),
            "on_lost": noting("lost"),
            **options,
        },
    )
