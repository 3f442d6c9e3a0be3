"""The bare HTTP client of the benchmarks reads answers whole."""

from benchmarks.wire import retry_after_s, whole_answer

ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nRetry-After: 2\r\n\r\nwait"


def test_an_answer_is_there_only_when_its_last_byte_is() -> None:
    assert [whole_answer(ANSWER[:end]) for end in range(len(ANSWER))] == [None] * len(ANSWER)

    answer = whole_answer(ANSWER)

    assert answer is not None
    assert (answer.status, answer.body, answer.is_success) == (503, b"wait", False)
    assert retry_after_s(answer.head) == 2
