"""Patches made by products of matrices are those of the convolutions, and learn the same."""

import pytest
import torch

from longtake.geometry.tokens import PatchEmbed
from training.fused_patches import FusedPatchEmbed, fuse_patches


def two_embeddings() -> tuple[PatchEmbed, PatchEmbed]:
    torch.manual_seed(0)
    plain, fused = PatchEmbed(14, 24, stem=8), PatchEmbed(14, 24, stem=8)
    fused.load_state_dict(plain.state_dict())
    fuse_patches(fused)
    assert type(fused) is FusedPatchEmbed
    return plain, fused


@pytest.mark.parametrize("size", [(28, 42), (70, 14), (14, 14)])
def test_tokens_and_gradients_are_those_of_the_convolutions(size: tuple[int, int]) -> None:
    images = torch.rand(3, 3, *size)
    said, learned = [], []
    for embed in two_embeddings():
        tokens = embed(images)
        tokens.square().sum().backward()
        said.append(tokens)
        learned.append([weight.grad for weight in embed.parameters()])
    torch.testing.assert_close(said[1], said[0], atol=1e-5, rtol=1e-5)
    for fused, plain in zip(learned[1], learned[0], strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-3, rtol=1e-4)


def test_patches_without_a_stem_stay_as_they_are() -> None:
    embed = PatchEmbed(14, 24)
    fuse_patches(embed)
    assert type(embed) is PatchEmbed
