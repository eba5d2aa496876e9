"""What each key received, against the whole map, golden numbers and the gradient of the values."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention import attention_mass as module
from longtake.attention.attention_mass import attention_mass, attention_mass_by_map
from longtake.attention.backend import ReferenceBackend, SdpaBackend, merge

GOLDEN = Path(__file__).parents[1] / "golden" / "stream3r" / "attention_received.npz"

sizes = st.fixed_dictionaries(
    {
        "queries": st.integers(1, 9),
        "keys": st.integers(1, 1100),
        "heads": st.integers(1, 3),
        "head_dim": st.sampled_from([2, 8, 24]),
        "seed": st.integers(0, 2**20),
    }
)


def projections(*, queries: int, keys: int, heads: int = 2, head_dim: int = 8, seed: int = 0) -> list[Tensor]:
    """Queries, keys and values; the keys are a stretch of a slab, read in place."""
    generator = torch.Generator().manual_seed(seed)
    q = 2 * torch.randn(1, queries, heads, head_dim, generator=generator)
    slab = torch.randn(2, 1, keys + 5, heads, head_dim, generator=generator)
    return [q, *slab[:, :, 3 : keys + 3]]


@settings(max_examples=50, deadline=None)
@given(sizes)
def test_sums_equal_those_of_the_map(size: dict[str, int]) -> None:
    q, k, v = projections(**size)
    log_sum_exp = SdpaBackend().attend(q, k, v).log_sum_exp
    torch.testing.assert_close(
        attention_mass(q, k, log_sum_exp), attention_mass_by_map(q, k, log_sum_exp), rtol=1e-5, atol=1e-6
    )


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(1, 5000))
def test_all_heads_at_once_give_the_same_whatever_the_workspace(size: dict[str, int], workspace: int) -> None:
    q, k, v = projections(**size)
    log_sum_exp = SdpaBackend().attend(q, k, v).log_sum_exp
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORKSPACE_BYTES", workspace)
        got = module._heads_together(q[0], k[0], log_sum_exp[0])
    torch.testing.assert_close(got, attention_mass_by_map(q, k, log_sum_exp), rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(sizes, st.sampled_from([torch.bfloat16, torch.float16]), st.integers(1, 700))
def test_attention_of_keys_to_queries_gives_the_same(size: dict[str, int], dtype: torch.dtype, block: int) -> None:
    q, k, v = (tensor.to(dtype) for tensor in projections(**size))
    log_sum_exp = ReferenceBackend().attend(q, k, v).log_sum_exp
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SWAPPED_KEYS", block)
        got = module._swapped(q[0], k[0], log_sum_exp[0])
    torch.testing.assert_close(got, attention_mass_by_map(q, k, log_sum_exp), rtol=1e-4, atol=1e-6)


def test_golden_column_sums() -> None:
    with np.load(GOLDEN) as file:
        golden = {name: torch.from_numpy(file[name]) for name in file.files if name != "settings"}
    for sample in range(2):
        q, k = (golden[name][sample].transpose(0, 1).unsqueeze(0) for name in ("q", "k"))
        log_sum_exp = golden["lse"][sample].T.unsqueeze(0)
        want = golden["colsum_headmean"][sample]
        for sums in (attention_mass(q, k, log_sum_exp), attention_mass_by_map(q, k, log_sum_exp)):
            torch.testing.assert_close(sums / q.shape[2], want, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(sums, golden["colsum_per_head"][sample].sum(0), rtol=1e-5, atol=1e-6)
        assert float(want.double().var(correction=0)) == pytest.approx(float(golden["var_of_colsum"][sample]), rel=1e-5)


def test_sums_are_the_gradient_of_the_values_when_every_output_counts_once() -> None:
    q, k, v = projections(queries=33, keys=700, heads=4, head_dim=16)
    log_sum_exp = SdpaBackend().attend(q, k, v).log_sum_exp
    v = v.clone().requires_grad_()
    heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*heads_first).sum().backward()
    assert v.grad is not None
    torch.testing.assert_close(attention_mass(q, k, log_sum_exp), v.grad[0, :, :, 0].sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cuts", [(1,), (512,), (100, 600), (5, 6, 7)])
def test_blocks_together_receive_one_for_each_query_and_head(cuts: tuple[int, ...]) -> None:
    q, k, v = projections(queries=11, keys=800, heads=3)
    keys, values = k.tensor_split(cuts, dim=1), v.tensor_split(cuts, dim=1)
    attended = merge([SdpaBackend().attend(q, *block) for block in zip(keys, values, strict=True)])
    sums = torch.cat([attention_mass(q, block, attended.log_sum_exp) for block in keys])
    assert float(sums.sum()) == pytest.approx(11 * 3, rel=1e-5)
    whole = attention_mass(q, k, ReferenceBackend().attend(q, k, v).log_sum_exp)
    torch.testing.assert_close(sums, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keys_are_summed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in projections(queries=200, keys=900, head_dim=64))
    log_sum_exp = ReferenceBackend().attend(q, k, v).log_sum_exp
    got = attention_mass(q, k, log_sum_exp)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, attention_mass_by_map(q, k, log_sum_exp), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got, attention_mass(q.float(), k.float(), log_sum_exp), rtol=1e-6, atol=1e-7)


def test_very_large_logits_do_not_overflow() -> None:
    q, k, v = projections(queries=5, keys=40)
    log_sum_exp = ReferenceBackend().attend(100 * q, k, v).log_sum_exp
    assert float(log_sum_exp.max()) > math.log(torch.finfo(torch.float32).max)
    assert float(attention_mass(100 * q, k, log_sum_exp).sum()) == pytest.approx(10, rel=1e-3)


UNDER_A_CEILING = """
import re, resource, sys
from pathlib import Path
import torch
from longtake.attention.attention_mass import attention_mass
from longtake.attention.attention_mass import attention_mass_by_map

torch.set_num_threads(1)
q, k = torch.randn(1, 3000, 1, 8), torch.randn(1, 40_000, 1, 8)
log_sum_exp = torch.full((1, 3000, 1), 20.0)
work = {"blocks": attention_mass, "map": attention_mass_by_map}[sys.argv[1]]
work(q[:, :9], k[:, :600], log_sum_exp[:, :9])
held = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (held + 64 * 2**20,) * 2)
work(q, k, log_sum_exp)
"""


@pytest.mark.extra
@pytest.mark.skipif(sys.platform != "linux", reason="reads what the process holds from /proc")
def test_sums_fit_under_a_ceiling_that_the_map_breaks() -> None:
    """The map of these queries and keys takes 480 MB; 64 MiB are allowed."""
    outcomes = {
        way: subprocess.run([sys.executable, "-c", UNDER_A_CEILING, way], capture_output=True, text=True, check=False)
        for way in ("blocks", "map")
    }
    assert outcomes["blocks"].returncode == 0, outcomes["blocks"].stderr
    assert outcomes["map"].returncode != 0
    assert "memory" in outcomes["map"].stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("head_dim", [64, 20, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gpu_sums_equal_those_of_the_map_and_take_little_memory(dtype: torch.dtype, head_dim: int) -> None:
    q, k, v = (tensor.to("cuda", dtype) for tensor in projections(queries=999, keys=40_001, head_dim=head_dim))
    log_sum_exp = ReferenceBackend().attend(q, k, v).log_sum_exp
    want = attention_mass_by_map(q, k, log_sum_exp)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    got = attention_mass(q, k, log_sum_exp)
    assert torch.cuda.max_memory_allocated() - before < 2**27  # the map takes 2.4 times that
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
