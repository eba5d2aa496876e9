"""A simulated walk holds no more than was announced, however often it comes back, and the solver's work is timed."""

from benchmarks.loop_bytes import measure_held


def test_a_long_walk_holds_what_was_announced() -> None:
    early, late = measure_held(240, at=(120, 240))
    assert (early.frames, late.frames) == (120, 240)
    assert late.places == 60
    assert late.nodes == 5
    assert early.all_bytes < late.all_bytes < late.most_bytes
    assert late.view_bytes == 2 * early.view_bytes
