"""The published compression class: golden runs index for index, method by method, and what it refuses."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.compat.stream3r import LayerWiseKVCompression
from longtake.errors import InputError, SettingError, TransactionError

GOLDEN = Path(__file__).parent.parent / "golden" / "stream3r"
LARGEST = 3.4028235e38
RUNS = [("A", "p50_t0.5"), ("A", "p45_t1.5"), ("A", "p70_t0.25"), ("A", "short_total6_p50_t1"), ("B", "b2_p50_t0.5")]
PUBLISHED: dict[str, list[str]] = {
    "__init__": [
        "num_layers",
        "tokens_per_frame",
        "patch_start_idx",
        "total_frames",
        "budget_ratio",
        "temp",
        "device",
    ],
    "initialize_first_frame": ["attn_maps_layers"],
    "update_cumulative_maps": ["attn_maps_layers", "frame_idx"],
    "compute_layer_importance": ["attn_maps_layers"],
    "compute_per_layer_budgets": ["attn_maps_layers", "current_frame_idx"],
    "get_removal_indices_per_layer": ["tk_rm_num_per_layer", "frame_idx"],
    "compact_kv_cache": ["kv_cache_list", "removal_indices_per_layer"],
    "process_frame": ["kv_cache_list", "frame_idx"],
    "reset": [],
}

Cache = list[tuple[Tensor, Tensor, Tensor | None]]


class Replay:
    """A golden run: keys are the numbers of their tokens, so that a cache tells what is left."""

    def __init__(self, file: str, run: str) -> None:
        self.data = np.load(GOLDEN / f"eviction_algorithm_{file}.npz")
        self.run = run
        self.options: dict[str, Any] = json.loads(str(self.data["settings"]))[run]
        self.tokens, self.layers = self.options["tokens_per_frame"], self.options["layers"]
        self.ids: list[np.ndarray] = [np.arange(0)] * self.layers

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[f"{self.run}/{name}"]

    def compression(self) -> LayerWiseKVCompression:
        return LayerWiseKVCompression(
            num_layers=self.layers,
            tokens_per_frame=self.tokens,
            patch_start_idx=self.options["patch_start_idx"],
            total_frames=self.options["total_frames"],
            budget_ratio=self.options["P"],
            temp=self.options["temp"],
        )

    def look(self, frame: int, *, summed: bool = False) -> Cache:
        """The cache once a frame was looked at, its head-mean maps or their sums beside it."""
        own = np.arange(frame * self.tokens, (frame + 1) * self.tokens)
        self.ids = [np.concatenate((ids, own)) for ids in self.ids]
        cache: Cache = []
        for layer, ids in enumerate(self.ids):
            logits = torch.from_numpy(self.data["logits"][:, layer, frame][..., ids])
            attention = logits.softmax(dim=-1).mean(dim=1)
            keys = torch.from_numpy(ids).float().expand(self.options["batch"], 2, -1).unsqueeze(-1)
            cache.append((keys, -keys, attention.sum(dim=1) if summed else attention))
        return cache

    def take(self, compacted: Cache) -> None:
        for keys, values, attention in compacted:
            assert attention is None
            assert torch.equal(values, -keys)
        self.ids = [keys[0, 0, :, 0].long().numpy() for keys, _, _ in compacted]

    def check(self, compression: LayerWiseKVCompression, frame: int) -> None:
        for layer, ids in enumerate(self.ids):
            kept = self["kept_ids"][frame, layer]
            assert ids.tolist() == kept[kept >= 0].tolist(), (frame, layer)
            noted, exposure = compression.cum_attn_maps[layer], compression.exposure_counts[layer]
            assert noted is not None
            assert exposure is not None
            assert exposure.tolist() == self["exposure_after"][frame, layer, : len(ids)].tolist()
            want = self["cam_after"][frame, layer, : len(ids)]
            np.testing.assert_allclose(np.nan_to_num(noted.numpy(), posinf=LARGEST), want, rtol=2e-5)


@pytest.mark.parametrize("summed", [False, True], ids=["maps", "sums"])
@pytest.mark.parametrize(("file", "run"), RUNS)
def test_golden_run_is_repeated_index_for_index(file: str, run: str, summed: bool) -> None:
    replay = Replay(file, run)
    compression = replay.compression()
    for frame in range(replay.options["frames"]):
        before = [len(ids) + replay.tokens for ids in replay.ids]
        replay.take(compression.process_frame(replay.look(frame, summed=summed), frame))
        replay.check(compression, frame)
        removed = [count - len(ids) for count, ids in zip(before, replay.ids, strict=True)]
        assert removed == replay["removed"][frame].tolist()


@pytest.mark.parametrize(("file", "run"), [RUNS[0], RUNS[-1]])
def test_methods_called_one_by_one_say_the_golden_numbers(file: str, run: str) -> None:
    replay = Replay(file, run)
    compression = replay.compression()
    for frame in range(replay.options["frames"] - 1):
        cache = replay.look(frame)
        maps = [attention for _, _, attention in cache if attention is not None]
        if frame == 0:
            compression.initialize_first_frame(maps)
            leaving: list[Tensor | None] = [None] * replay.layers
        else:
            compression.update_cumulative_maps(maps, frame)
            alphas, variances = compression.compute_layer_importance(maps)
            np.testing.assert_allclose(alphas.numpy(), replay["alphas"][frame], rtol=1e-4)
            np.testing.assert_allclose(variances.numpy(), replay["variances"][frame], rtol=1e-4)
            targets = compression.compute_per_layer_budgets(maps, frame)
            assert targets == replay["targets"][frame].tolist()
            leaving = compression.get_removal_indices_per_layer(targets, frame)
        assert compression.current_frame == max(frame, 1)
        replay.take(compression.compact_kv_cache(cache, leaving))
        replay.check(compression, frame)


def test_protected_tokens_go_as_published_where_the_budget_is_smaller() -> None:
    replay = Replay("A", "violate_p20_t0.5")
    compression = replay.compression()
    evicted = replay.options["protected_evicted_per_frame"]
    first = next(frame for frame, count in enumerate(evicted) if count)
    for frame in range(first + 1):
        before = [len(ids) + replay.tokens for ids in replay.ids]
        replay.take(compression.process_frame(replay.look(frame), frame))
        removed = [count - len(ids) for count, ids in zip(before, replay.ids, strict=True)]
        assert removed == replay["removed"][frame].tolist()
    special = [token for token in range((first + 1) * 10) if token < 10 or token % 10 < 3]
    lost = sum(token not in ids for ids in replay.ids for token in special)
    assert lost == evicted[first]


def test_reset_begins_a_sequence_anew() -> None:
    replay = Replay("A", "p50_t0.5")
    compression = replay.compression()
    for _ in range(2):
        replay.ids = [np.arange(0)] * replay.layers
        for frame in range(6):
            replay.take(compression.process_frame(replay.look(frame), frame))
            replay.check(compression, frame)
        compression.reset()
        assert compression.cum_attn_maps == compression.exposure_counts == [None] * 3
        assert compression.current_frame == 0


@pytest.mark.parametrize("method", PUBLISHED)
def test_signature_is_the_published_one(method: str) -> None:
    parameters = inspect.signature(inspect.getattr_static(LayerWiseKVCompression, method)).parameters
    assert list(parameters) == ["self", *PUBLISHED[method]]
    if method == "__init__":
        assert (parameters["budget_ratio"].default, parameters["temp"].default) == (0.5, 0.5)


def test_notes_live_on_the_device_asked_for() -> None:
    compression = LayerWiseKVCompression(1, 4, 1, 6, device="cpu")
    compression.initialize_first_frame([torch.ones(1, 4, 4)])
    noted = compression.cum_attn_maps[0]
    assert noted is not None
    assert noted.device.type == "cpu"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_layers": 0}, "at least one layer"),
        ({"tokens_per_frame": 0, "patch_start_idx": 0}, "one token in a frame"),
        ({"patch_start_idx": 5}, "no more special tokens"),
        ({"total_frames": 0}, "1 to 1000000000"),
        ({"budget_ratio": 0.0}, "above 0"),
        ({"temp": -1.0}, "above 0"),
    ],
)
def test_settings_without_meaning_are_refused(options: dict[str, Any], sentence: str) -> None:
    usual = {"num_layers": 2, "tokens_per_frame": 4, "patch_start_idx": 1, "total_frames": 6}
    with pytest.raises(SettingError, match=sentence):
        LayerWiseKVCompression(**usual | options)


def test_caches_and_maps_that_do_not_fit_are_refused() -> None:
    compression = LayerWiseKVCompression(1, 4, 1, 6)
    keys = torch.zeros(1, 2, 4, 8)
    with pytest.raises(TransactionError, match="begin the sequence with frame 0"):
        compression.process_frame([(keys, keys, torch.ones(1, 4, 4))], 1)
    with pytest.raises(InputError, match="Expected 1 layers as declared, but got 2"):
        compression.initialize_first_frame([torch.ones(1, 4, 4)] * 2)
    with pytest.raises(InputError, match=r"average a map over its heads first"):
        compression.initialize_first_frame([torch.ones(1, 2, 4, 4)])
    with pytest.raises(InputError, match="what its keys received, but got None"):
        compression.process_frame([(keys, keys, None)], 0)
    compression.initialize_first_frame([torch.ones(1, 4, 4)])
    with pytest.raises(InputError, match="Expected the 4 tokens that layer 0 holds and 4 of a new frame"):
        compression.update_cumulative_maps([torch.ones(1, 4, 5)], 1)
    with pytest.raises(InputError, match="its keys and values have 4 and 3"):
        compression.compact_kv_cache([(keys, keys[:, :, :3], None)], [None])
    with pytest.raises(InputError, match="its keys and values, but got None"):
        compression.compact_kv_cache([(None, None, None)], [None])
