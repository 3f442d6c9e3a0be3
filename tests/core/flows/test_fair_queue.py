"""The order of flows against a plain model that looks at all of them each time."""

from hypothesis import given
from hypothesis import strategies as st

from rota.core.flows.fair_queue import FairQueue, Flow, Tenant
from rota.core.flows.model import FlowSpec
from rota.core.ids import TaskId

TENANTS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "serve", "discard"]),
        st.integers(0, 5),  # a flow
        st.integers(0, 2),  # its rank, where it is pushed
    ),
    max_size=60,
)


def expected(flows: list[Flow]) -> Flow:
    """The flow that is next, by the rule as it is written."""

    def order(flow: Flow) -> tuple[int, float, str, tuple[int, TaskId]]:
        assert flow.place is not None
        rank = min(
            one.place[0] for one in flows if one.tenant is flow.tenant and one.place is not None
        )
        return rank, flow.tenant.virtual_time, flow.tenant.key, flow.place

    return min(flows, key=order)


@given(STEPS, st.tuples(*[st.sampled_from([0.5, 1.0, 2.0])] * 3))
def test_the_next_flow_is_that_of_the_plain_model(
    steps: list[tuple[str, int, int]], weights: tuple[float, float, float]
) -> None:
    queue = FairQueue()
    tenants = [Tenant("q", key, weight) for key, weight in zip(TENANTS, weights, strict=True)]
    flows = [Flow(number, 1, FlowSpec(), tenants[number % 3]) for number in range(6)]
    inside: dict[int, Flow] = {}
    for next_id, (step, number, rank) in enumerate(steps, start=1):
        flow = flows[number]
        if step == "push":
            flow.place = rank, TaskId(next_id)
            queue.push(flow)
            inside[number] = flow
        elif step == "discard":
            queue.discard(flow)
            inside.pop(number, None)
        elif inside:
            served = queue.first()
            assert served is expected([*inside.values()])
            served.tenant.charge()
            assert served.place is not None
            served.place = served.place[0], TaskId(next_id)
            queue.push(served)
        assert len(queue) == len(inside)
    if inside:
        assert queue.first() is expected([*inside.values()])
        assert {one.number for one in queue.ahead(6)} == inside.keys()
    else:
        assert queue.ahead(6) == []
        assert queue.first() is None


@given(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=5))
def test_each_tenant_gets_its_share_within_one_start_at_any_time(weights: list[float]) -> None:
    queue = FairQueue()
    tenants = [Tenant("q", str(number), weight) for number, weight in enumerate(weights)]
    for number, tenant in enumerate(tenants):
        flow = Flow(number, 1, FlowSpec(), tenant)
        flow.place = 0, TaskId(number)
        queue.push(flow)
    served = dict.fromkeys(tenants, 0)

    for turn in range(1, 200):
        flow = queue.first()  # type: ignore[assignment]
        flow.tenant.charge()
        served[flow.tenant] += 1
        flow.place = 0, TaskId(1_000 + turn)
        queue.push(flow)

        times = [count / tenant.weight for tenant, count in served.items()]
        assert max(times) - min(times) <= max(1 / one.weight for one in tenants) + 1e-9


def test_the_flows_ahead_are_the_first_ones_of_the_tenants_that_come_first() -> None:
    queue = FairQueue()
    tenants = [Tenant("q", key) for key in TENANTS]
    tenants[0].virtual_time = 9.0
    for number in reversed(range(30)):
        flow = Flow(number, 1, FlowSpec(), tenants[number % 3])
        flow.place = 0, TaskId(number)
        queue.push(flow)

    assert [one.number for one in queue.ahead(2)] == [1, 2]
    assert {one.number for one in queue.ahead(6)} == {0, 1, 2, 3, 4, 5}
    assert len(queue) == 30
