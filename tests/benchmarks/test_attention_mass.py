"""The benchmark of the statistics says under which sizes it measured."""

import torch

from benchmarks.attention_mass import measure_attention_mass


def test_both_times_are_measured_at_the_sizes_asked_for() -> None:
    figures = measure_attention_mass(
        tokens_per_frame=20, cached_frames=3, num_heads=2, head_dim=8, device=torch.device("cpu"), repeats=2
    )
    assert (figures.queries, figures.keys, figures.heads, figures.head_dim) == (20, 80, 2, 8)
    assert (figures.device, figures.dtype, figures.threads) == ("cpu", "float32", 1)
    assert figures.attention_ms > 0
    assert figures.overhead == figures.statistics_ms / figures.attention_ms > 0
