"""How many workers fit into a GPU: by sizes in closed form, which are those of real sessions and models."""

import pytest
import torch

from longtake.api.map_request import MapRequest
from longtake.batch import gpus, mapping
from longtake.batch.gpus import GpuShare, gpu_share, worker_bytes
from longtake.errors import SettingError
from longtake.hub.load import load_model, skeleton_of
from longtake.runtime.build import memory_bytes, open_session, usual_settings
from longtake.runtime.execution import Precision

_CONTEXT_AND_WORK = 10**9 + 8 * 126 * 126 * 16 * 4
"""Of tiny: a process, and features of eight frames."""


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_a_worker_takes_what_its_model_and_session_take(precision: Precision) -> None:
    request = MapRequest(model="tiny", precision=precision.value, loops=False)
    model = load_model("tiny", trunk_dtype=precision.dtype)
    session = open_session(model, request.adjusted(usual_settings(model.config), precision), (126, 126))
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    assert worker_bytes(request) == weights + session.num_bytes + _CONTEXT_AND_WORK


@pytest.mark.parametrize("words", [{"memory": "2MB"}, {"memory": "20 frames"}, {"size": 70}, {"windows": "none"}])
def test_what_is_asked_for_counts(words: dict[str, str | int]) -> None:
    model = load_model("tiny")
    settings = MapRequest(**words).adjusted(usual_settings(model.config))
    size = (settings.image_size, settings.image_size)
    assert memory_bytes(model.config, settings, size) == open_session(model, settings, size).num_bytes


def test_a_published_network_is_known_before_it_is_there() -> None:
    model = skeleton_of("lingbot-map")
    assert model is not None
    assert next(model.parameters()).is_meta
    need = worker_bytes(MapRequest(model="lingbot-map"))
    assert need is not None
    assert 12e9 < need < 17e9  # 10.8 GB were measured of a picture that is no square, without what CUDA takes
    assert GpuShare(per_gpu=None, worker_bytes=need).most(24 * 10**9) == 1
    assert GpuShare(per_gpu=None, worker_bytes=need).most(139 * 10**9) == 8


def test_workers_fit_as_often_as_their_bytes_do() -> None:
    share = GpuShare(per_gpu=None, worker_bytes=10 * 10**9)
    assert [share.most(free * 10**9) for free in (5, 10, 11, 22, 80)] == [1, 1, 1, 2, 7]
    assert share.most_unmeasured(80 * 10**9) == 4
    assert share.most(None) == 1
    assert GpuShare(per_gpu=None).most(80 * 10**9) == 1
    assert GpuShare(per_gpu=6, worker_bytes=10**9).most(1) == GpuShare(per_gpu=6).most_unmeasured(1) == 6


@pytest.mark.parametrize("words", [{"model": "nowhere.safetensors"}, {"model": "tiny", "precision": "fp8"}])
def test_what_nobody_can_size_is_left_to_whoever_maps_it(words: dict[str, str]) -> None:
    assert worker_bytes(MapRequest(**words)) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")
def test_only_a_cluster_may_have_a_gpu_that_is_not_here() -> None:
    on_gpu = MapRequest(model="tiny", device="cuda")
    share = gpu_share(on_gpu, None, of_cluster=True)
    assert share is not None
    assert share.worker_bytes is not None
    assert gpu_share(MapRequest(), None, of_cluster=True) is None
    assert gpu_share(MapRequest(), None) is None
    with pytest.raises(SettingError, match="Torch sees no CUDA device here"):
        gpu_share(on_gpu, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")
def test_a_gpu_that_does_not_answer_is_no_error() -> None:
    assert gpus.free_bytes({"CUDA_VISIBLE_DEVICES": "0"}) is None


def test_a_machine_begins_with_a_worker_on_each_gpu_and_grows_to_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    two = ({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "3"})
    free = {"0": 40 * 10**9, "3": 22 * 10**9}
    monkeypatch.setattr(mapping, "environments", lambda: two)
    monkeypatch.setattr(mapping, "free_bytes", lambda gpu: free[gpu["CUDA_VISIBLE_DEVICES"]])
    monkeypatch.setattr(mapping, "Growth", lambda sharing, num_gpus: grown.append((sharing.most, num_gpus)))
    grown: list[tuple[int, int]] = []
    fitting = GpuShare(per_gpu=None, worker_bytes=10 * 10**9)
    assert mapping._on_gpus(None, 1, 100, fitting).num_workers == 4
    assert mapping._on_gpus(3, 1, 100, fitting).num_workers == 3
    assert grown == [(2, 2), (2, 2)]
    assert mapping._on_gpus(None, 1, 100, GpuShare(per_gpu=3)).num_workers == 6
    assert mapping._on_gpus(None, 1, 5, GpuShare(per_gpu=3)).num_workers == 5
    assert len(grown) == 2  # a number that was said is not tried out


@pytest.mark.parametrize("per_gpu", ["many", "0", -1, "1.5"])
def test_another_word_than_auto_is_refused(per_gpu: str | int, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(SettingError, match="Expected per_gpu as a whole number"):
        mapping.open_batch(["world:1"], tmp_path_factory.mktemp("out"), per_gpu=per_gpu)
