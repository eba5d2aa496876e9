"""The bundled model still answers as its card says: a broken model, memory, tokenizer or renderer is caught here.

The bars are a margin below the shares in docs/micro-vqa.json, which `longtake bench policies --card` writes for the
weights that are in the package.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.bench.answers import AnswersSettings, measure_sessions
from longtake.bench.answers_policies import KEEP_ALL, MemoryVariant
from longtake.bench.answers_scoring import ALL, KINDS, ScoredRow, score_rows
from longtake.evaluation.asked_walk import QuestionPlan
from longtake.hub.bundled import MICRO_VQA, fingerprint
from longtake.hub.load import load_language_model
from longtake.language.load import LanguageModel, load_language
from longtake.world.question import QuestionKind
from training.vqa_model import build_vqa, save_vqa

CARD_FILE = Path(__file__).parents[2] / "docs" / "micro-vqa.json"
MARGIN, MARGIN_OF_ALL = 0.2, 0.06
"""Of the share right: three houses have some twenty questions of each kind, 163 in all."""
WORLDS, SIZE = 3, (112, 168)
FEWEST_CARD_WORLDS = 20
LEAST_POINTS_ABOVE = 0.25
"""Over the commonest answer, in every kind."""
LEAST_TIMES_CHANCE = 3.0
EVIDENT_KINDS = (QuestionKind.FIRST, QuestionKind.WHEN)


@pytest.fixture(scope="module")
def card() -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(CARD_FILE.read_text())
    return told


@pytest.fixture(scope="module")
def row(card: Mapping[str, Any]) -> Mapping[str, Any]:
    (found,) = (row for row in card["rows"] if row["settings"] == KEEP_ALL)
    told: Mapping[str, Any] = found
    return told


def answered(language: LanguageModel, card: Mapping[str, Any], num_worlds: int) -> ScoredRow:
    """About the first test houses, always the same ones, asked as for the card."""
    asking = QuestionPlan(
        num_frames=card["num_frames"],
        fps=card["fps"],
        num_moments=len(card["moments"]),
        num_questions=card["questions"],
        recent_s=card["recent_s"],
    )
    variants = (MemoryVariant(policy=KEEP_ALL, memory=None),)
    settings = AnswersSettings(variants=variants, asking=asking, num_worlds=num_worlds, size=SIZE, num_training=1)
    (scored,) = score_rows(measure_sessions(language, settings, lambda _: None))
    return scored


def shares(scored: ScoredRow) -> dict[str, float]:
    return {kind: score.right.value for kind, score in scored.reaching(None).items()}


@pytest.fixture(scope="module")
def scored(card: Mapping[str, Any]) -> ScoredRow:
    return answered(load_language_model(MICRO_VQA.name), card, WORLDS)


@pytest.fixture(scope="module")
def bars(row: Mapping[str, Any]) -> dict[str, float]:
    told = row["scores"]["anywhere"]
    return {kind: told[kind]["right"]["value"] - (MARGIN_OF_ALL if kind == ALL else MARGIN) for kind in (*KINDS, ALL)}


def test_card_is_of_the_bundled_weights_and_of_many_worlds(card: Mapping[str, Any]) -> None:
    """Where this fails, new weights lack figures: docs/micro-vqa.md has the command."""
    assert card["weights"] == MICRO_VQA.name
    assert card["weights_sha256"] == fingerprint(MICRO_VQA.name)
    assert card["num_worlds"] >= FEWEST_CARD_WORLDS
    assert card["split"] == "test"
    assert (card["height"], card["width"]) == SIZE


def test_card_is_far_above_the_commonest_answer_in_every_kind(row: Mapping[str, Any]) -> None:
    told = row["scores"]["anywhere"]
    above = {str(kind): told[str(kind)]["above"]["value"] for kind in QuestionKind}
    assert all(points >= LEAST_POINTS_ABOVE for points in above.values()), above


@pytest.mark.parametrize("kind", EVIDENT_KINDS)
def test_card_says_that_evidence_is_at_the_true_moment_far_more_often_than_by_chance(
    kind: QuestionKind, row: Mapping[str, Any]
) -> None:
    assert row["evidence"][str(kind)]["times_chance"]["value"] >= LEAST_TIMES_CHANCE


@pytest.mark.extra
@pytest.mark.parametrize("kind", [*KINDS, ALL])
def test_answers_about_three_houses_stay_near_the_cards_share(
    kind: str, scored: ScoredRow, bars: dict[str, float]
) -> None:
    assert shares(scored)[kind] >= bars[kind]


@pytest.mark.extra
@pytest.mark.parametrize("kind", EVIDENT_KINDS)
def test_evidence_in_three_houses_is_at_the_true_moment_more_often_than_by_chance(
    kind: QuestionKind, scored: ScoredRow
) -> None:
    (found,) = (score for score in scored.evidence if score.kind == kind)
    assert found.times_chance is not None
    assert found.times_chance.value > 1


@pytest.mark.extra
def test_bars_refuse_weights_that_know_nothing(card: Mapping[str, Any], bars: dict[str, float], tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_vqa(build_vqa(), tmp_path)
    found = shares(answered(load_language(tmp_path), card, 1))
    assert sum(found[kind] < bar for kind, bar in bars.items() if kind in found) > len(found) // 2


@pytest.mark.extra
def test_streamed_answers_of_the_trained_model_are_those_of_the_whole_clip(
    row: Mapping[str, Any], scored: ScoredRow
) -> None:
    """A plain network of the library, with the same weights, gets frames, prompt and question at once."""
    assert scored.row.num_offline >= 5 * WORLDS
    assert scored.row.num_equal == scored.row.num_offline
    assert row["offline"]["num_equal"] == row["offline"]["num_questions"] > 0
