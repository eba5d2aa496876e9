"""What a fork of a filled memory costs."""

from benchmarks.fork import FORKED_TOKENS, measure_fork


def test_fork_takes_the_same_bytes_from_any_memory() -> None:
    small, *_, large = (measure_fork(num_tokens, repeats=20) for num_tokens in (100, 1_000, 20_000))
    assert large.memory_bytes == 200 * small.memory_bytes == 20_000 * 2 * 2 * 64 * 4
    assert 0 < large.fork_bytes <= small.fork_bytes + 512
    assert large.fork_us < 20 * small.fork_us
    assert large.step_us > 0
    assert max(FORKED_TOKENS) == 100 * min(FORKED_TOKENS)
