"""The lowest scores leave, against sorting them all."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.memory.policies.allocation import without_lowest

scored = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 2.5, float("inf")]), st.booleans()), max_size=12)


@settings(deadline=None)
@given(scored, st.integers(-3, 12))
def test_lowest_leave_and_of_equals_the_earlier(tokens: list[tuple[float, bool]], num_leaving: int) -> None:
    candidates = [(score, place) for place, (score, may_leave) in enumerate(tokens) if may_leave]
    num_leaving = min(num_leaving, len(candidates))
    leaving = {place for _, place in sorted(candidates)[: max(0, num_leaving)]}
    scores = np.asarray([score for score, _ in tokens], dtype=np.float32)
    may_leave = np.asarray([flag for _, flag in tokens], dtype=np.bool_)
    stays = without_lowest(scores, num_leaving, may_leave=may_leave)
    assert set(np.flatnonzero(~stays).tolist()) == leaving
