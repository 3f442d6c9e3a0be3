from rota.engine.metrics.time_series import MOST_QUEUES, SLOT_MS, SLOTS, Gauges, TimeSeries, Track

NOW_MS = 1_800_000_000_000
FIRST = NOW_MS // SLOT_MS


def test_what_happens_in_one_slot_is_counted_together() -> None:
    track = Track()

    track.add("submitted", 2, NOW_MS)
    track.add("submitted", 3, NOW_MS + SLOT_MS - 1)
    track.add("failed", 1, NOW_MS + SLOT_MS)

    span = track.span(FIRST - 1, 3)
    assert span.submitted == [None, 5, 0]
    assert span.failed == [None, 0, 1]


def test_gauges_are_unknown_where_nobody_looked() -> None:
    track = Track()

    track.look(Gauges(depth=4, running=1, oldest_age_ms=900), NOW_MS)
    track.add("finished", 1, NOW_MS + SLOT_MS)

    span = track.span(FIRST, 2)
    assert span.depth == [4, None]
    assert span.oldest_age_ms == [900, None]
    assert span.finished == [0, 1]


def test_an_hour_later_a_slot_begins_anew() -> None:
    track = Track()
    track.add("submitted", 7, NOW_MS)
    track.look(Gauges(1, 1, 1), NOW_MS)

    track.add("submitted", 1, NOW_MS + SLOTS * SLOT_MS)

    assert track.span(FIRST, 1).submitted == [None]
    assert track.span(FIRST + SLOTS, 1).submitted == [1]
    assert track.span(FIRST + SLOTS, 1).depth == [None]


def test_all_queues_together_are_charted_whatever_their_number() -> None:
    series = TimeSeries()

    for number in range(MOST_QUEUES + 5):
        series.add(f"q{number}", "submitted", 1, NOW_MS)
    series.look([("q1", Gauges(2, 0, 50)), ("q2", Gauges(3, 1, 20))], NOW_MS)

    assert len(series.queues) == MOST_QUEUES
    assert series.all.span(FIRST, 1).submitted == [MOST_QUEUES + 5]
    assert series.all.span(FIRST, 1).depth == [5]
    assert series.all.span(FIRST, 1).oldest_age_ms == [50]


def test_the_busiest_queues_come_first() -> None:
    series = TimeSeries()
    series.add("calm", "submitted", 1, NOW_MS)
    series.add("busy", "submitted", 9, NOW_MS)
    series.add("bust", "finished", 4, NOW_MS)

    assert series.busiest(2) == ["busy", "bust"]


def test_a_minute_that_was_kept_is_taken_up_by_another_process() -> None:
    before, after = TimeSeries(), TimeSeries()
    before.add("mail", "submitted", 3, NOW_MS)
    before.add("mail", "failed", 1, NOW_MS + SLOT_MS)
    before.look([("mail", Gauges(4, 1, 900)), ("idle", Gauges(0, 0, 0))], NOW_MS)

    kept = before.minute(NOW_MS // 60_000 * 60_000)
    after.add("mail", "finished", 5, NOW_MS + 9 * SLOT_MS)
    after.fill(kept)

    assert [one.queue for one in kept] == ["", "mail"]
    assert after.queues["mail"].span(FIRST, 3) == before.queues["mail"].span(FIRST, 3)
    assert after.all.span(FIRST, 3) == before.all.span(FIRST, 3)
    assert after.queues["mail"].span(FIRST + 9, 1).finished == [5]


def test_a_minute_in_which_nothing_happened_is_not_kept() -> None:
    series = TimeSeries()
    series.look([("idle", Gauges(0, 0, 0))], NOW_MS)

    assert series.minute(NOW_MS) == ()
