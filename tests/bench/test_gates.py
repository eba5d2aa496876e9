"""The bundled model still does what its card says: a broken model, memory or renderer is caught here.

The bars are twice the medians in docs/micro-map.json, which `longtake bench quality --card` writes for the weights that
are in the package.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.bench.exactness import measure_exactness
from longtake.bench.quality import MapVariant, QualitySettings, film_world, measure_quality
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import MICRO_MAP, fingerprint
from longtake.hub.load import load_model, random_model
from longtake.runtime.build import SMALL
from longtake.weights.presets import MICRO

CARD_FILE = Path(__file__).parents[2] / "docs" / "micro-map.json"
GATED = ("ate_share", "rotation_since_first_deg", "step_rotation_deg", "scale_range", "depth_abs_rel", "fov_deg")
TIMES_THE_CARD = 2.0
FRAMES, WORLDS, SIZE = 48, 3, (98, 126)
FEWEST_CARD_WORLDS = 50


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The network is too small to share, and tests beside this one have work for the other cores."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return load_model(MICRO_MAP.name)


@pytest.fixture(scope="module")
def card() -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(CARD_FILE.read_text())
    return told


@pytest.fixture(scope="module")
def bars(card: Mapping[str, Any]) -> dict[str, float]:
    (row,) = (row for row in card["rows"] if row["num_frames"] == FRAMES)
    return {name: TIMES_THE_CARD * row["summary"][name]["median"] for name in GATED}


def watched(model: GeometryModel, num_worlds: int) -> dict[str, float]:
    """Medians over the first test houses, always the same ones."""
    variants = (MapVariant(name="usual", session=SMALL),)
    settings = QualitySettings(variants=variants, frames=(FRAMES,), num_worlds=num_worlds, size=SIZE)
    (row,) = measure_quality(model, settings, lambda _: None)
    summaries = row.summaries()
    return {name: summary.median for name in GATED if (summary := summaries[name]) is not None}


@pytest.fixture(scope="module")
def figures(model: GeometryModel) -> dict[str, float]:
    return watched(model, WORLDS)


def test_card_is_of_the_bundled_weights_and_of_many_worlds(card: Mapping[str, Any]) -> None:
    """Where this fails, new weights lack figures: docs/micro-map.md has the command."""
    assert card["weights"] == MICRO_MAP.name
    assert card["weights_sha256"] == fingerprint(MICRO_MAP.name)
    assert card["num_worlds"] >= FEWEST_CARD_WORLDS
    assert (card["height"], card["width"]) == SIZE


@pytest.mark.extra
def test_walks_through_three_houses_stay_within_twice_the_cards_figures(
    figures: dict[str, float], bars: dict[str, float]
) -> None:
    assert {name: figures[name] for name in GATED if figures[name] > bars[name]} == {}


@pytest.mark.extra
def test_bars_refuse_weights_that_know_nothing(bars: dict[str, float]) -> None:
    figures = watched(random_model(MICRO, torch.device("cpu")), 1)
    assert any(figures[name] > bars[name] for name in GATED if name in figures)


@pytest.mark.extra
def test_streaming_with_eviction_on_the_trained_model_equals_the_masked_whole_clip(model: GeometryModel) -> None:
    film = film_world(9, FRAMES, SIZE, torch.device("cpu"), lambda _: None)
    exactness = measure_exactness(model, film.images, SMALL)
    assert exactness.stream_to_clip_error < 2e-5
    assert exactness.resumed_is_identical
