"""The link in memory, which other tests rely on, behaves as one over sockets."""

import asyncio

from rota.core.commands import PauseQueue, SubmitTasks
from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.replies import Submitted
from rota.core.tasks.model import NewTask
from rota.engine.replicas.link.frames import (
    Abandon,
    FollowerFrame,
    Forward,
    LeaderFrame,
    Replied,
    Resigning,
)
from tests.engine.replicas.memory import memory_pair


class Told:
    def __init__(self) -> None:
        self.frames: list[FollowerFrame | LeaderFrame] = []
        self.losses: list[Exception | None] = []


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_frames_arrive_encoded_and_decoded_and_in_order() -> None:
    follower, leader = memory_pair()
    told, told_leader = Told(), Told()
    command = SubmitTasks([NewTask(name="a")])
    follower.send(Forward(1, command))
    follower.send(Abandon(2))
    await turns()
    leader.start(told_leader.frames.append, told_leader.losses.append)
    follower.start(told.frames.append, told.losses.append)

    assert told_leader.frames == [Forward(1, command), Abandon(2)]
    forward = told_leader.frames[0]
    assert isinstance(forward, Forward)
    assert forward.command is not command
    reply = Replied(1, Submitted([AddTask(TaskId(3), command.tasks[0], 4)]))
    leader.send(reply)
    await turns()
    assert told.frames == [reply]


async def test_what_is_held_back_is_lost_with_the_connection() -> None:
    follower, leader = memory_pair()
    told, told_leader = Told(), Told()
    follower.start(told.frames.append, told.losses.append)
    leader.start(told_leader.frames.append, told_leader.losses.append)
    follower.is_held = True
    follower.send(Forward(1, PauseQueue("q", paused=True)))
    await turns()
    assert follower.backlog > 0
    error = ConnectionResetError()
    leader.cut(error)
    follower.cut(None)
    follower.send(Abandon(1))
    await turns()

    assert told_leader.frames == []
    assert told.losses == told_leader.losses == [error]
    assert follower.backlog == 0


async def test_a_closed_connection_delivers_what_was_sent() -> None:
    follower, leader = memory_pair()
    told, told_leader = Told(), Told()
    follower.start(told.frames.append, told.losses.append)
    leader.start(told_leader.frames.append, told_leader.losses.append)
    leader.send(Resigning())
    leader.close()
    await turns()

    assert told.frames == [Resigning()]
    assert told.losses == told_leader.losses == [None]
