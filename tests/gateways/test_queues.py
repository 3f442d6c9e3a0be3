from tests.gateways.serving import Api


async def test_queues_show_depth_age_and_rates(api: Api) -> None:
    worker = await api.register()
    await api.submit(queue="mail")
    await api.submit(queue="mail")
    await api.submit(queue="mail", delay_ms=60_000)
    api.clock.turn(1_000)
    await worker.lease(most=1)

    (queue,) = (await api.get("/api/queues")).json()["items"]

    assert queue["name"] == "mail"
    assert (queue["depth"], queue["scheduled"], queue["running"]) == (1, 1, 1)
    assert queue["oldest_age_ms"] == 1_000
    assert queue["submitted_per_s"] > 0
    assert queue["paused"] is False


async def test_a_paused_queue_gives_out_nothing_until_it_is_resumed(api: Api) -> None:
    worker = await api.register()
    await api.submit(queue="mail/out")

    paused = await api.post("/api/queues/mail%2Fout/pause")
    during = await worker.lease()
    resumed = await api.post("/api/queues/mail%2Fout/resume")
    after = await worker.lease()

    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert paused.json()["depth"] == 1
    assert resumed.json()["paused"] is False
    assert (len(during), len(after)) == (0, 1)


async def test_a_queue_nobody_ever_heard_of_cannot_be_resumed(api: Api) -> None:
    answer = await api.post("/api/queues/nowhere/resume")

    assert (answer.status_code, answer.json()["code"]) == (404, "queue_not_found")
    assert "not found" in answer.json()["detail"]


async def test_a_name_that_no_queue_can_have_is_not_found(api: Api) -> None:
    answer = await api.post(f"/api/queues/{'x' * 201}/pause")

    assert (answer.status_code, answer.json()["code"]) == (404, "queue_not_found")
