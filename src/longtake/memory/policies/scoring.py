"""Who leaves, once it is known how many."""

import numpy as np
from jaxtyping import Bool, Float


def without_lowest(
    scores: Float[np.ndarray, " tokens"], num_leaving: int, *, may_leave: Bool[np.ndarray, " tokens"]
) -> Bool[np.ndarray, " tokens"]:
    """Who stays when the lowest scores of those who may leave go; of equals the earlier in attention order goes."""
    stays = np.ones(len(scores), dtype=np.bool_)
    if num_leaving <= 0:
        return stays
    candidates = np.flatnonzero(may_leave)
    assert num_leaving <= len(candidates)
    of_candidates = scores[candidates]
    highest_leaving = np.partition(of_candidates, num_leaving - 1)[num_leaving - 1]
    leaves = of_candidates < highest_leaving
    equals = np.flatnonzero(of_candidates == highest_leaving)
    leaves[equals[: num_leaving - np.count_nonzero(leaves)]] = True
    stays[candidates[leaves]] = False
    return stays
