"""Why things wait: one test a reason, and what holds whatever waits and runs."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from schemas.training import Device, NodeConstraints
from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, MINUTE, nodes, ran, request
from tunery.plan.scheduling.explanation import (
    BACK_OFF_MS_MAX,
    FREED_MS_MAX,
    ExplainedQueue,
    Explanation,
    explain,
)
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import LANES, PlanNode, Request, Running, Seats

NOW = 100 * HOUR


def explained(of: list[PlanNode], running: list[Running], *waits: Request) -> ExplainedQueue:
    """Requests that were submitted a second apart, beside what runs."""
    state = PlanningState(of, PRODUCT)
    for lease in running:
        state.start(lease)
    submitted = [
        replace(each, submitted_at=NOW - HOUR + 1_000 * number) for number, each in enumerate(waits)
    ]
    return explain(state, submitted, NOW)


def why(queue: ExplainedQueue, job_id: str) -> Explanation:
    return queue.explanations[job_id]


def code(queue: ExplainedQueue, job_id: str) -> str:
    return why(queue, job_id).reason.code


def busy(job_id: str, node_id: str, slots: int, for_ms: int = 5 * MINUTE) -> Running:
    return ran(request(job_id, slots), ((node_id, slots),), for_ms, NOW)


def test_a_job_behind_another_on_one_node_waits_for_it_and_for_what_runs() -> None:
    queue = explained(nodes(1), [busy("r", "a", 1)], request("first"), request("second"))
    first, second = why(queue, "first"), why(queue, "second")
    assert (first.position, first.ahead, first.reason.code) == (1, 0, "no_capacity")
    assert first.earliest == first.latest == NOW + 55 * MINUTE
    assert (second.position, second.reason.code) == (2, "lane_order")
    assert second.reason.params == {"ahead": 1}
    assert second.earliest == NOW + HOUR + 55 * MINUTE


def test_the_interval_reaches_from_the_median_to_what_may_be() -> None:
    lease = replace(busy("r", "a", 1), p90_ms=3 * HOUR)
    waits = why(explained(nodes(1), [lease], request("j")), "j")
    assert (waits.earliest, waits.latest) == (NOW + 55 * MINUTE, NOW + 175 * MINUTE)


def test_what_fits_starts_with_the_next_decision() -> None:
    waits = why(explained(nodes(1), [], request("j")), "j")
    assert waits.reason.code == "next_decision"
    assert (waits.earliest, waits.latest) == (NOW, NOW)


def test_a_job_for_a_missing_accelerator_sees_which_ones_there_are() -> None:
    asked = replace(
        request("j"),
        needs=replace(request("j").needs, constraints=NodeConstraints(accelerator="b200")),
    )
    (plain, small) = nodes(8, 8)
    small = replace(small, accelerator="a100", memory_bytes=GB // 2)
    for of, code, accelerators in (
        ([plain], "no_accelerator", ""),
        ([plain, small], "no_accelerator", "a100"),
        ([plain, replace(small, accelerator="b200")], "no_device", None),
    ):
        waits = why(explained(of, [], asked), "j")
        assert waits.reason.code == code
        assert waits.reason.params.get("accelerators") == accelerators
        assert (waits.earliest, waits.latest) == (None, None)


def test_a_job_that_must_not_be_on_spot_nodes_says_that_only_those_are_free() -> None:
    never = replace(request("j").needs, constraints=NodeConstraints(spot=False))
    (busy, spot) = nodes(1, 1)
    spot = replace(spot, price_class="spot")
    waits = why(explained([spot], [], replace(request("j"), needs=never)), "j")
    assert (waits.reason.code, waits.earliest) == ("price_class", None)
    lease = ran(request("other", hours=2), (("a", 1),), HOUR, NOW)
    waits = why(explained([busy, spot], [lease], replace(request("j"), needs=never)), "j")
    assert (waits.reason.code, waits.earliest) == ("price_class", NOW + HOUR)


def test_a_job_beside_tainted_nodes_sees_their_taints() -> None:
    (node,) = nodes(8)
    tainted = replace(node, taints=("eu", "research"))
    waits = why(explained([tainted], [], request("j")), "j")
    assert (waits.reason.code, waits.earliest) == ("tainted", None)
    assert waits.reason.params == {"taints": "eu, research"}
    cpu = replace(request("j"), needs=replace(request("j").needs, device="cpu"))
    assert why(explained([tainted], [], cpu), "j").reason.code == "no_device"


def near(job_id: str, domain: str, until: int | None = None) -> Request:
    """A request for nodes of a domain, and for those of others from then on."""
    waits = request(job_id)
    needs = replace(waits.needs, constraints=NodeConstraints(domain=domain))
    return replace(waits, needs=needs, domain_until=until)


def test_a_job_that_waits_for_its_domain_says_so_and_when_it_takes_others() -> None:
    a, b = nodes(1, 1)
    racks = [replace(a, domain="rack-0"), replace(b, domain="rack-1")]
    lease = ran(request("other", hours=2), (("b", 1),), HOUR, NOW)
    waits = why(explained(racks, [lease], near("j", "rack-1")), "j")
    assert (waits.reason.code, waits.earliest) == ("domain_busy", NOW + HOUR)
    waits = why(explained(racks, [lease], near("j", "rack-1", NOW + MINUTE)), "j")
    assert (waits.reason.code, waits.earliest, waits.latest) == ("domain_busy", *2 * [NOW + MINUTE])
    waits = why(explained(racks, [lease], near("j", "rack-1", NOW + 2 * HOUR)), "j")
    assert waits.latest == NOW + HOUR, "its domain is free before"
    waits = why(explained(racks, [], near("j", "rack-9")), "j")
    assert (waits.reason.code, waits.earliest) == ("no_domain", None)
    assert waits.reason.params == {"domain": "rack-9", "domains": "rack-0, rack-1"}
    waits = why(explained(racks, [], near("j", "rack-9", NOW + MINUTE)), "j")
    assert (waits.reason.code, waits.earliest) == ("no_domain", NOW + MINUTE)


def test_without_a_node_that_suits_there_is_a_reason_and_no_expected_start() -> None:
    cpu = replace(request("j"), needs=replace(request("j").needs, device="cpu"))
    wide = replace(cpu, needs=replace(cpu.needs, slots=5))
    large = replace(request("j"), needs=replace(request("j").needs, memory_bytes=25 * GB))
    for of, each, expected in (
        ([], request("j"), "no_node_up"),
        (nodes(8), cpu, "no_device"),
        (nodes(8), large, "no_device"),
        (nodes(8, 8), request("j", slots=17), "gang_too_large"),
        (
            [replace(node, fabric=False) for node in nodes(8, 8)],
            request("j", slots=16),
            "no_fabric",
        ),
        ([PlanNode("a", 8, "cpu", 4 * GB)], wide, "memory_short"),
    ):
        waits = why(explained(of, [], each), "j")
        assert waits.reason.code == expected
        assert (waits.earliest, waits.latest, waits.position) == (None, None, 1)


def test_a_job_that_keeps_away_from_the_only_node_starts_after_its_back_off() -> None:
    barred = replace(request("j"), needs=replace(request("j").needs, barred=("a",)))
    waits = why(explained(nodes(8), [], barred), "j")
    assert (waits.reason.code, waits.reason.params) == ("excluded_nodes", {"nodes": 1})
    assert (waits.earliest, waits.latest) == (NOW, NOW + BACK_OFF_MS_MAX)


def test_free_slots_on_two_nodes_are_a_matter_of_topology() -> None:
    running = [busy("r", "a", 2), busy("s", "b", 2)]
    assert code(explained(nodes(4, 4), running, request("j", slots=4)), "j") == "topology"


def test_free_slots_may_be_reserved_for_a_job_before() -> None:
    running = [busy("r", "a", 3)]
    queue = explained(nodes(4), running, request("gang", slots=4), request("long", hours=9))
    assert code(queue, "gang") == "topology" or code(queue, "gang") == "no_capacity"
    assert code(queue, "long") == "reservation"
    assert len(queue.planned.reservations) == 1


def test_premium_that_has_its_cap_waits_for_the_other_lanes() -> None:
    running = [
        replace(busy(f"r{number}", "a", 1, for_ms=number * MINUTE), lane=0) for number in range(8)
    ]
    gang, last = request("gang", slots=4), request("p", lane="premium")
    queue = explained(nodes(8), running, last, request("first", 4, "premium"), gang)
    assert [each.request.job_id for each in queue.explanations.values()] == ["gang", "p", "first"]
    waits = why(queue, "p")
    assert (waits.reason.code, waits.position, waits.ahead) == ("lane_cap", 1, 1)
    assert waits.earliest is not None
    assert why(queue, "gang").earliest == NOW + 56 * MINUTE
    assert waits.earliest > NOW + 56 * MINUTE


def test_memory_that_cpu_leases_share_may_be_taken() -> None:
    node = PlanNode("a", 4, "cpu", 4 * GB)
    needs = replace(request("r").needs, device="cpu", memory_bytes=3 * GB)
    running = replace(ran(replace(request("r"), needs=needs), (("a", 1),), MINUTE, NOW))
    waits = why(explained([node], [running], replace(request("j"), needs=needs)), "j")
    assert (waits.reason.code, waits.reason.params) == ("memory_taken", {"memory_bytes": 3 * GB})


def test_slots_that_are_being_freed_for_a_job_are_its_reason() -> None:
    running = ran(request("r", slots=8, lane="free", hours=90), (("a", 8),), HOUR, NOW)
    queue = explained(nodes(8), [running], request("j", slots=8, lane="premium"))
    waits = why(queue, "j")
    assert waits.reason.code == "slots_being_freed"
    assert (waits.earliest, waits.latest) == (NOW, NOW + FREED_MS_MAX)
    notified = replace(running, ends_by=NOW + MINUTE)
    state = PlanningState(nodes(8), PRODUCT)
    state.start(notified)
    state.bind("j", (("a", 8),))
    again = why(explain(state, [request("j", slots=8, lane="premium")], NOW), "j")
    assert (again.reason.code, again.latest) == ("slots_being_freed", NOW + MINUTE)


def test_an_old_free_job_is_shown_in_the_lane_that_serves_it() -> None:
    old = replace(request("old", lane="free"), submitted_at=NOW - PRODUCT.aged_ms)
    state = PlanningState(nodes(1), PRODUCT)
    state.start(busy("r", "a", 1))
    young = replace(request("young", lane="free"), submitted_at=NOW)
    queue = explain(state, [old, young], NOW)
    assert (why(queue, "old").lane, why(queue, "old").position) == (LANES.index("standard"), 1)
    assert (why(queue, "young").lane, why(queue, "young").position) == (LANES.index("free"), 1)


def test_sched_c19_positions_follow_lanes_and_shares_and_not_the_order_of_arrival() -> None:
    running = [ran(request("r", 1, tenant="many"), (("a", 1),), MINUTE, NOW)]
    waits = [
        *(request(f"many-{number}", tenant="many") for number in range(3)),
        request("few", tenant="few"),
        request("first", lane="premium"),
    ]
    queue = explained(nodes(1), running, *waits)
    shown = [(each.request.job_id, each.position) for each in queue.explanations.values()]
    assert shown[:2] == [("first", 1), ("few", 1)]
    assert [position for _, position in shown[1:]] == [1, 2, 3, 4]


REQUESTS = st.builds(
    Request,
    job_id=st.uuids().map(str),
    tenant=st.sampled_from(("a", "b", "c")),
    lane=st.integers(0, 2),
    needs=st.builds(
        lambda slots, device, gigabytes: replace(
            request("j", slots).needs, device=device, memory_bytes=gigabytes * GB
        ),
        st.integers(1, 9),
        st.sampled_from(("cpu", "cuda")),
        st.integers(1, 30),
    ),
    submitted_at=st.integers(0, NOW),
    p50_ms=st.integers(0, HOUR),
    p90_ms=st.integers(HOUR, 9 * HOUR),
)
INFEASIBLE = {"no_node_up", "no_device", "gang_too_large", "memory_short"}
DEVICES: tuple[Device, ...] = ("cpu", "cuda")


@st.composite
def clusters(draw: st.DrawFn) -> PlanningState:
    sizes = draw(st.lists(st.integers(1, 8), max_size=5))
    of = [
        PlanNode(f"n{number}", slots, draw(st.sampled_from(DEVICES)), 24 * GB)
        for number, slots in enumerate(sizes)
    ]
    state = PlanningState(of, PRODUCT)
    for node in of:
        for slot in range(draw(st.integers(0, node.slots))):
            seats: Seats = ((node.node_id, 1),)
            began = draw(st.integers(NOW - 9 * HOUR, NOW + HOUR))  # a clock may have gone back
            lease = ran(request(f"{node.node_id}/{slot}"), seats, NOW - began, NOW)
            ends_by = draw(st.none() | st.integers(NOW - HOUR, NOW + HOUR))
            state.start(replace(lease, lane=draw(st.integers(0, 2)), ends_by=ends_by))
    return state


@given(state=clusters(), waits=st.lists(REQUESTS, max_size=30, unique_by=lambda each: each.job_id))
def test_everything_that_waits_has_a_position_a_reason_and_no_start_in_the_past(
    state: PlanningState, waits: list[Request]
) -> None:
    queue = explain(state, waits, NOW)
    assert queue.explanations.keys() == {each.job_id for each in waits}
    for lane in range(len(LANES)):
        positions = [each.position for each in queue.explanations.values() if each.lane == lane]
        assert positions == list(range(1, len(positions) + 1))
    for each in queue.explanations.values():
        assert each.reason.code
        assert (each.earliest is None) == (each.latest is None)
        if each.earliest is not None and each.latest is not None:
            assert NOW <= each.earliest <= each.latest
        else:
            assert each.reason.code in INFEASIBLE
        if each.reason.code == "next_decision":
            assert each.earliest == NOW


@given(state=clusters(), waits=st.lists(REQUESTS, max_size=9, unique_by=lambda each: each.job_id))
def test_a_reason_names_no_job_and_no_tenant(state: PlanningState, waits: list[Request]) -> None:
    for each in explain(state, waits, NOW).explanations.values():
        assert all(
            isinstance(value, int) or value in DEVICES for value in each.reason.params.values()
        )


def test_a_request_stops_waiting_for_seats_on_a_gone_node() -> None:
    state = PlanningState(nodes(1), PRODUCT)
    state.start(busy("r", "a", 1))
    state.bind("j", (("gone", 1),))
    waits = why(explain(state, [request("j")], NOW), "j")
    assert (waits.reason.code, waits.earliest) == ("no_capacity", NOW + 55 * MINUTE)
