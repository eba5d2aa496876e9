"""Which optimiser has which weights, what they do together, and where a training begins."""

import torch
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.layers.block import LayerScale
from longtake.weights.presets import MICRO, TINY
from training.muon import Muon
from training.optimise import Optimisers, initialise
from training.stream_pattern import StreamPattern
from training.vqa_model import TINY_VQA, build_vqa


def with_gradients(seed: int = 0) -> GeometryModel:
    torch.manual_seed(seed)
    model = GeometryModel(TINY)
    for weight in model.parameters():
        weight.grad = 0.1 * torch.randn_like(weight)
    return model


def is_matrix_of_a_block(name: str, weight: Tensor) -> bool:
    return "blocks." in name and weight.ndim == 2


def test_a_step_is_muons_for_matrices_of_blocks_and_adams_for_the_rest() -> None:
    ours, theirs = with_gradients(), with_gradients()
    named = dict(theirs.named_parameters())
    matrices = [weight for name, weight in named.items() if is_matrix_of_a_block(name, weight)]
    rest = [weight for name, weight in named.items() if not is_matrix_of_a_block(name, weight)]
    decayed, free = ([w for w in rest if w.ndim > 1], [w for w in rest if w.ndim <= 1])
    assert matrices
    assert decayed
    assert free
    muon = Muon(matrices, weight_decay=0.1)
    adams = [
        torch.optim.AdamW(some, lr=1e-2, betas=(0.9, 0.97), weight_decay=decay)
        for some, decay in ((decayed, 0.1), (free, 0.0))
    ]
    optimisers = Optimisers(ours, weight_decay=0.1)
    for _ in range(3):
        optimisers.step(1e-2)
        muon.step(1e-2)
        for adam in adams:
            adam.step()
    for name, weight in ours.named_parameters():
        assert torch.equal(weight, named[name]), name


def test_they_remember_something_of_every_weight_before_and_after_the_first_step() -> None:
    model = with_gradients()
    optimisers = Optimisers(model, weight_decay=0.1)
    before = {name: value.clone() for name, value in optimisers.live().items()}
    optimisers.step(1e-2)
    after = optimisers.live()
    assert before.keys() == after.keys()
    assert {name.split("/", 1)[1] for name in after} == {name for name, _ in model.named_parameters()}
    assert all(float(value.abs().sum()) == 0 for value in before.values())
    assert all(float(value.abs().sum()) > 0 for value in after.values())


def test_half_of_the_bytes_are_stored() -> None:
    optimisers = Optimisers(GeometryModel(MICRO), weight_decay=0.1)
    live, stored = (
        sum(value.numel() * value.dtype.itemsize for value in some.values())
        for some in (optimisers.live(), optimisers.stored())
    )
    assert live / 2 <= stored < live / 2 + 1000


def test_a_training_begins_where_every_camera_is_the_first_with_a_common_lens() -> None:
    torch.manual_seed(0)
    model = GeometryModel(MICRO)
    initialise(model)
    assert all(bool((m.gamma == 0.1).all()) for m in model.modules() if isinstance(m, LayerScale))
    pattern = StreamPattern(num_frames=6, num_scale_frames=2, window=4, interval=1)
    with torch.no_grad():
        recall = pattern.recall(MICRO, (28, 42), torch.device("cpu"))
        said = model(torch.rand(1, 6, 3, 28, 42), recall, model.grid(28, 42)).pose_encoding[0]
    first = torch.tensor([0.0] * 6 + [1.0, 1.1, 1.1])
    assert float((said - first).abs().max()) < 0.3


def test_matrices_of_all_blocks_of_a_language_model_are_kept_near_orthogonal() -> None:
    model = build_vqa(TINY_VQA)
    learned_so = {
        name.removeprefix("momentum/") for name in Optimisers(model, weight_decay=0.0).live() if "momentum" in name
    }
    of_text = {name for name in learned_so if name.startswith("model.language_model.layers.")}
    of_vision = {name for name in learned_so if name.startswith("model.visual.blocks.")}
    assert learned_so == of_text | of_vision
    assert len(of_text) == 7 * TINY_VQA.depth
    assert len(of_vision) == 5 * TINY_VQA.vision_depth
