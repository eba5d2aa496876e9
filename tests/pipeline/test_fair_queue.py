from longtake.pipeline.fair_queue import FairQueue

QUANTUM_S = 0.03


def served_s(costs_s: dict[str, float], num_steps: int) -> dict[str, float]:
    """Seconds that each lane got, with always an item waiting in all."""
    queue, got = FairQueue[str](), dict.fromkeys(costs_s, 0.0)
    for name in costs_s:
        queue.put(name, name)
    for _ in range(num_steps):
        name, item = queue.peek(QUANTUM_S)
        queue.pay(name, costs_s[name])
        got[name] += costs_s[name]
        queue.put(name, item)
        queue.take(name, item)
    return got


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def test_lanes_get_the_same_time_whatever_their_steps_cost() -> None:
    got = served_s({"cheap": 0.01, "dear": 0.09, "middle": 0.03}, 2000)
    assert jain(list(got.values())) > 0.99


def test_fifty_lanes_are_all_served() -> None:
    got = served_s({f"lane{number}": 0.002 + 0.001 * (number % 7) for number in range(50)}, 5000)
    assert min(got.values()) > 0
    assert jain(list(got.values())) >= 0.95


def test_items_of_a_lane_keep_their_order() -> None:
    queue = FairQueue[int]()
    for item in range(3):
        queue.put("a", item)
    taken = []
    while len(queue):
        name, item = queue.peek(QUANTUM_S)
        queue.pay(name, 0.01)
        queue.take(name, item)
        taken.append(item)
    assert taken == [0, 1, 2]


def test_a_lane_that_empties_itself_after_each_step_pays_its_debt() -> None:
    queue, got = FairQueue[str](), {"bursts": 0.0, "steady": 0.0}
    queue.put("steady", "steady")
    for _ in range(1000):
        if not queue.waiting("bursts"):
            queue.put("bursts", "bursts")
        name, item = queue.peek(QUANTUM_S)
        cost_s = 0.1 if name == "bursts" else 0.01
        queue.pay(name, cost_s)
        got[name] += cost_s
        if name == "bursts":
            queue.take(name, item)
    assert jain(list(got.values())) >= 0.95


def test_an_idle_lane_earns_no_credit() -> None:
    queue = FairQueue[str]()
    queue.put("busy", "busy")
    for _ in range(100):
        name, _ = queue.peek(QUANTUM_S)
        queue.pay(name, 0.01)
    queue.put("late", "late")
    order = []
    for _ in range(10):
        name, _ = queue.peek(QUANTUM_S)
        queue.pay(name, 0.01)
        order.append(name)
    assert 4 <= order.count("late") <= 6


def test_forgetting_a_lane_leaves_nothing_of_it() -> None:
    queue = FairQueue[str]()
    queue.put("a", "x")
    queue.forget("a")  # not empty: stays
    assert queue.waiting("a") == ("x",)
    queue.take("a", "x")
    queue.take("a", "x")
    queue.forget("a")
    assert queue.waiting("a") == ()
    assert len(queue) == 0
