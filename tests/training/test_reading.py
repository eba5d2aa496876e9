"""One step of a model that answers."""

import math

import pytest
import torch
from sighted import job
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from training.question_batches import run_job
from training.reading import Places, Reading
from training.recording import learn, prepare_gradients
from training.vocabulary import Vocabulary
from training.vqa_model import PICTURE_FORMAT, TINY_VQA, build_vqa


def test_a_step_asks_the_device_for_no_number_and_so_can_be_recorded() -> None:
    """Tensors without values: whoever asks for one is refused."""
    one = job(0)
    packed = run_job(one)
    places = Places.of(packed, torch.device("cpu")).tensors()
    told = [torch.from_numpy(packed.labels).long(), torch.from_numpy(packed.evident)]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model = build_vqa(TINY_VQA)
        reading = Reading(model, one.shape, PICTURE_FORMAT)
        weights = list(model.parameters())
        prepare_gradients(weights)
        pairs = torch.rand(2, one.shape.num_grids, 2, 3, 112, 168)
        figures = learn(reading._compute, [pairs, *map(mode.from_tensor, (*told, *places))], weights)
        assert figures.shape == (3,)
        with pytest.raises(DataDependentOutputException):
            figures.tolist()


def test_a_network_that_knows_nothing_guesses_and_every_weight_of_it_learns() -> None:
    one = job(1)
    packed = run_job(one)
    torch.manual_seed(0)
    model = build_vqa(TINY_VQA)
    weights = list(model.parameters())
    prepare_gradients(weights)
    pairs = torch.rand(2, one.shape.num_grids, 2, 3, 112, 168)
    loss, right, pointing = Reading(model, one.shape, PICTURE_FORMAT).learn(pairs, packed, weights, None)
    assert float(loss) == pytest.approx(math.log(len(Vocabulary())), rel=0.1)
    assert 0 <= float(right) <= 0.3
    assert 0.5 < float(pointing) < math.log(one.shape.num_grids)
    without = [name for name, weight in model.named_parameters() if not bool(weight.grad.any())]
    assert without == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_recorded_step_leaves_the_gradients_of_a_plain_one() -> None:
    device, one = torch.device("cuda"), job(1)
    torch.manual_seed(0)
    model = build_vqa(TINY_VQA).to(device)
    weights = list(model.parameters())
    prepare_gradients(weights)
    pairs = torch.rand(2, one.shape.num_grids, 2, 3, 112, 168, device=device)
    recorded = Reading(model, one.shape, PICTURE_FORMAT)
    recorded.learn(pairs, run_job(job(2)), weights, torch.cuda.graph_pool_handle())
    recorded.learn(pairs, run_job(one), weights, torch.cuda.graph_pool_handle())
    got = [weight.grad.clone() for weight in weights]
    Reading(model, one.shape, PICTURE_FORMAT).learn(pairs, run_job(one), weights, None)
    for mine, weight in zip(got, weights, strict=True):
        torch.testing.assert_close(mine, weight.grad, rtol=0.02, atol=1e-3)
