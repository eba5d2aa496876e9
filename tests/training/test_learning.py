"""What is said of clips in training, against the model as it is used; and that it can be learned."""

import numpy as np
import pytest
import torch

from longtake.geometry.model import GeometryModel
from longtake.weights.presets import TINY
from training.cutting import ClipFrames
from training.footage import Clips, Footage
from training.learning import ClipTrainer
from training.losses import PARTS, depth_losses, pose_losses, targets, weighted
from training.optimise import Optimisers, initialise
from training.recording import prepare_gradients
from training.stream_pattern import StreamPattern

SIZE = (28, 42)
WATCHING = StreamPattern(num_frames=10, num_scale_frames=2, window=4, interval=2)


@pytest.fixture
def model() -> GeometryModel:
    torch.manual_seed(0)
    model = GeometryModel(TINY)
    initialise(model)
    return model


def test_answers_are_those_of_the_model_in_bfloat16(model: GeometryModel, wandering: Clips) -> None:
    deep = torch.tensor([1, 5, 6, 9])
    with torch.no_grad():
        grid = model.grid(*SIZE)
        said = ClipTrainer(model, WATCHING, grid).predict(wandering.image, deep)
        recall = WATCHING.recall(TINY, SIZE, torch.device("cpu"))
        with torch.autocast("cpu", torch.bfloat16):
            usual = model(wandering.image, recall, grid)
        exact = model(wandering.image, recall, grid)
    torch.testing.assert_close(said.poses, usual.pose_iterations, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(said.confidence, usual.depth_confidence[:, deep], atol=0.01, rtol=0.01)
    torch.testing.assert_close(said.depth, exact.depth[:, deep], atol=0.02, rtol=0.02)


def test_every_weight_learns_from_one_clip(model: GeometryModel, wandering: Clips) -> None:
    weights = list(model.parameters())
    prepare_gradients(weights)
    truth, deep = targets(wandering, 2), torch.arange(10)
    with torch.no_grad():
        grid = model.grid(*SIZE)
    way = ClipTrainer(model, WATCHING, grid)
    parts = way.learn([wandering.image, truth.pose, truth.is_known, truth.depth, deep], weights, None)
    untouched = [name for name, weight in model.named_parameters() if float(weight.grad.abs().sum()) == 0]
    assert untouched == []
    with torch.no_grad():
        said = way.predict(wandering.image, deep)
    of_depth = depth_losses(said.depth, said.confidence, truth.depth)
    expected = torch.stack([*pose_losses(said.poses, truth.pose, truth.is_known), *of_depth])
    assert parts.shape == (len(PARTS),)
    torch.testing.assert_close(parts, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.extra
def test_one_clip_is_learned_by_heart(model: GeometryModel, filmed: Footage) -> None:
    weights = list(model.parameters())
    prepare_gradients(weights)
    optimisers = Optimisers(model, weight_decay=0.0)
    frames = ClipFrames(
        walk=np.zeros((1, 10), dtype=np.int64), frame=np.arange(10)[None], is_known=np.ones((1, 10), dtype=np.bool_)
    )
    clips = filmed.take(frames)
    truth, deep = targets(clips, 2), torch.tensor([0, 5])
    way = ClipTrainer(model, WATCHING, model.grid(*SIZE))
    losses = []
    for _ in range(30):
        parts = way.learn([clips.image, truth.pose, truth.is_known, truth.depth[:, deep], deep], weights, None)
        optimisers.step(2e-3)
        losses.append(dict(zip(PARTS, parts.tolist(), strict=True)) | {"all": float(weighted(parts))})
    print(losses[0], losses[-1])
    for part in ("place", "turn", "step", "lens", "depth_error", "all"):
        assert losses[-1][part] < 0.7 * losses[0][part], part
