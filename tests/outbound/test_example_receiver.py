"""The example of a receiver takes what a coordinator signs, once, and nothing else."""

import threading
import time
from collections.abc import Iterator

import pytest

from examples.webhook_receiver import Receiver
from rota.core.outbound.signatures import new_secret, signed_headers
from rota.core.outbound.targets import policy_of
from rota.engine.outbound.client import OutboundClient, OutboundRequest

SECRET = new_secret(bytes(range(32)))
BODY = b'{"type": "task-failed", "subject": "t1", "data": {"queue": "mail"}}'


@pytest.fixture
def url() -> Iterator[str]:
    receiver = Receiver(("127.0.0.1", 0), SECRET)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{receiver.server_port}/"
    receiver.shutdown()
    thread.join()
    receiver.server_close()


async def send(url: str, body: bytes = BODY, *, age_s: int = 0, secret: str = SECRET) -> int:
    headers = signed_headers(secret, "m-1", body, now_s=int(time.time()) - age_s)
    client = OutboundClient(policy_of("127.0.0.1", is_closed=True))
    sent = OutboundRequest(
        url=url, body=body, headers=headers, timeout_ms=10_000, max_answer_bytes=100
    )
    return (await client.post(sent)).status


async def test_a_signed_event_is_shown_once(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [await send(url), await send(url)] == [204, 204]

    assert capsys.readouterr().out == 'task-failed t1 {"queue": "mail"}\n'


async def test_an_old_or_forged_event_is_refused(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = new_secret(bytes(32))

    assert [await send(url, age_s=600), await send(url, secret=other)] == [401, 401]
    assert await send(url, b"not json") == 401
    assert capsys.readouterr().out == ""
