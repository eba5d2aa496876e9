"""A card of loops lies beside the weights it was chosen for, and is read back as it was written."""

from dataclasses import replace
from pathlib import Path

import pytest

from longtake.errors import CheckpointError, SettingError
from longtake.hub.load import loop_card_of
from longtake.places.loop_card import LoopCard, SideLimits, read_loop_card
from longtake.places.loops import Spread

CARD = LoopCard(
    least_agreeing=40,
    least_agreeing_share=0.3,
    least_depth_agreement=0.8,
    least_colour_agreement=0.9,
    least_texture_agreement=0.8,
    noise=Spread(translation=0.01, rotation_rad=0.008, log_scale=0.012),
    side=SideLimits(turn_deg=8.0, shift=0.2, log_scale=0.06),
)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


@pytest.mark.parametrize("card", [CARD, replace(CARD, side=None)])
def test_a_card_is_read_back_as_it_was_written(weights: Path, card: LoopCard) -> None:
    assert read_loop_card(weights) is None
    assert card.save(weights) == weights.with_suffix(".loops")
    assert read_loop_card(weights) == card


def test_a_card_of_other_weights_or_of_a_later_version_is_passed_over(weights: Path) -> None:
    path = CARD.save(weights)
    text = path.read_text()
    path.write_text(text.replace('"version": 1', '"version": 2'))
    assert read_loop_card(weights) is None
    path.write_text(text)
    weights.write_bytes(b"others")
    assert read_loop_card(weights) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"loops"', '"knots"'),
        ('"least_agreeing": 40', '"least_agreeing": -1'),
        ('"turn_deg"', '"turn"'),
        ("{", "["),
        ('"version": 1', '"version'),
    ],
)
def test_a_damaged_card_is_named(weights: Path, old: str, new: str) -> None:
    path = CARD.save(weights)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(CheckpointError, match=r"model\.loops is damaged"):
        read_loop_card(weights)


def test_limits_without_meaning_are_refused() -> None:
    with pytest.raises(SettingError, match="shares from 0 to 1"):
        replace(CARD, least_depth_agreement=1.2)
    with pytest.raises(SettingError, match="finite numbers above 0"):
        replace(CARD, least_agreeing=0)
    with pytest.raises(SettingError, match="finite numbers above 0"):
        SideLimits(turn_deg=float("nan"), shift=1.0, log_scale=1.0)
    with pytest.raises(SettingError, match="standard deviations above 0"):
        Spread(translation=0.0, rotation_rad=1.0, log_scale=1.0)


def test_a_model_by_its_file_has_the_card_beside_it_and_others_none(weights: Path) -> None:
    CARD.save(weights)
    assert loop_card_of(weights) == loop_card_of(str(weights)) == CARD
    assert loop_card_of("tiny") is None
    assert loop_card_of("lingbot-map") is None


def test_the_bundled_map_has_a_card_of_its_weights() -> None:
    """Whoever changes the weights chooses anew: python -m benchmarks loop-pairs --split validation --choose."""
    assert loop_card_of("micro-map") is not None
