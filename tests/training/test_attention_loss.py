"""Where words look, against a loop over heads and tokens, and the price of looking elsewhere, by hand."""

import math

import pytest
import torch
from torch import Tensor

from training.attention_loss import attention_mass, evidence_loss, supervised_layers

CLIPS, HEADS, WORDS, GRIDS, GRID_TOKENS, OPENING, DIM = 2, 3, 4, 5, 6, 7, 8
TOKENS = OPENING + GRIDS * GRID_TOKENS + WORDS


@pytest.fixture
def asked() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and what is seen: any tokens, and each word itself."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(CLIPS, HEADS, WORDS, DIM, generator=generator)
    k = torch.randn(CLIPS, HEADS, TOKENS, DIM, generator=generator)
    mask = torch.rand(CLIPS, 1, WORDS, TOKENS, generator=generator) < 0.6
    mask[..., -WORDS:] |= torch.eye(WORDS, dtype=torch.bool)
    return q, k, mask


def slowly_paid(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Word by word and head by head, over the tokens that are seen."""
    found = torch.zeros(CLIPS, WORDS, GRIDS)
    for clip in range(CLIPS):
        for word in range(WORDS):
            for head in range(HEADS):
                seen = [token for token in range(TOKENS) if mask[clip, 0, word, token]]
                powers = [math.exp(float(q[clip, head, word] @ k[clip, head, at]) / math.sqrt(DIM)) for at in seen]
                for token, power in zip(seen, powers, strict=True):
                    grid = (token - OPENING) // GRID_TOKENS
                    if 0 <= grid < GRIDS:
                        found[clip, word, grid] += power / sum(powers)
    return found


def test_attention_to_grids_is_that_of_a_slow_loop(asked: tuple[Tensor, Tensor, Tensor]) -> None:
    found = attention_mass(*asked, OPENING, GRIDS)
    torch.testing.assert_close(found, slowly_paid(*asked), rtol=0, atol=1e-5)
    assert (found >= 0).all()
    assert (found.sum(dim=-1) < HEADS).all()


def test_each_head_of_a_word_that_sees_only_grids_pays_one_in_all(asked: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, mask = asked
    mask[..., :OPENING], mask[..., -WORDS:] = False, False
    found = attention_mass(q, k, mask, OPENING, GRIDS)
    torch.testing.assert_close(found.sum(dim=-1), torch.full((CLIPS, WORDS), float(HEADS)))


def test_a_grid_that_is_not_seen_is_paid_nothing(asked: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, mask = asked
    mask[..., OPENING + 2 * GRID_TOKENS : OPENING + 3 * GRID_TOKENS] = False
    found = attention_mass(q, k, mask, OPENING, GRIDS)
    assert not found[..., 2].any()
    assert (found[..., 3].sum(dim=-1) > 0).all()


def test_loss_is_the_mean_over_words_with_evidence_of_how_unlikely_it_was_looked_at() -> None:
    looked = torch.tensor([[[1.0, 3.0, 0.0], [2.0, 1.0, 1.0]], [[0.5, 0.0, 1.5], [4.0, 4.0, 8.0]]])
    evident = torch.tensor([[[0, 1, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 1]]]).bool()
    wanted = -(math.log(3 / 4) + math.log(3 / 4) + math.log(1 / 2)) / 3
    assert float(evidence_loss(looked, evident)) == pytest.approx(wanted)


def test_who_looks_at_nothing_but_evidence_has_no_loss() -> None:
    looked = torch.tensor([[[0.0, 2.0, 0.5], [0.25, 0.0, 0.0]]])
    assert float(evidence_loss(looked, looked > 0)) == 0


def test_words_without_evidence_do_not_count() -> None:
    looked = torch.tensor([[[1.0, 3.0], [2.0, 2.0]]], requires_grad=True)
    evident = torch.tensor([[[True, False], [False, False]]])
    loss = evidence_loss(looked, evident)
    assert loss.item() == pytest.approx(math.log(4))
    (pull,) = torch.autograd.grad(loss, looked)
    assert pull[0, 0].any()
    assert not pull[0, 1].any()
    assert evidence_loss(looked, torch.zeros_like(evident)).item() == 0


def test_the_loss_has_a_bound_where_nothing_that_was_looked_at_shows_why() -> None:
    evident = torch.tensor([[[True, False]]])
    for looked in (torch.tensor([[[0.0, 3.0]]]), torch.zeros(1, 1, 2)):
        assert float(evidence_loss(looked, evident)) == pytest.approx(-math.log(1e-4))


@pytest.mark.parametrize(("num_layers", "told"), [(1, [0]), (2, [1]), (3, [1]), (4, [2]), (6, [3, 4]), (7, [3, 4, 5])])
def test_layers_from_the_middle_on_but_the_last_are_told(num_layers: int, told: list[int]) -> None:
    assert list(supervised_layers(num_layers)) == told
