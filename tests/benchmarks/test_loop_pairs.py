"""Candidates for loops have the truth they claim, limits keep what is false out, and the command prints both."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rendered_views import HOUSE, filmed

from benchmarks.loop_candidates import Candidate, CandidateSettings, Kind, candidates, shared
from benchmarks.loop_judging import judge_worlds, judge_worlds_apart
from benchmarks.loop_pairs import loop_pairs
from benchmarks.loop_scores import Judged, LoopError, Method, choose_card, figures, is_accepted
from longtake.bench.workers import open_workers
from longtake.errors import InputError, SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.hub.load import load_model_once, loop_card_of, random_model
from longtake.places.evidence import Evidence
from longtake.places.loop_card import LoopCard
from longtake.places.loops import Spread
from longtake.places.verification import Disagreement
from longtake.spatial.similarity import Similarity
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY
from longtake.world.families import Family
from longtake.world.seeds import Split

SIZE = (28, 42)
SETTINGS = CandidateSettings(split=Split.VALIDATION, num_worlds=2, num_places=1, way=500, size=SIZE)


@pytest.fixture(scope="module")
def found() -> list[Candidate]:
    ticks: list[int] = []
    made = list(candidates(random_model(TINY, torch.device("cpu")), SETTINGS, ticks.append))
    assert sum(ticks) == SETTINGS.num_worlds
    return made


def test_each_place_comes_with_what_only_looks_like_it(found: list[Candidate]) -> None:
    first, second = (place.kind for place in found[:2])
    assert (first, second) == (Kind.TRUE, Kind.SAME_WORLD)
    assert Kind.OTHER_WORLD in {one.kind for one in found}
    for one in found:
        assert (one.new_from_old is None) == (one.kind is not Kind.TRUE)
        assert len(one.old_clip) == len(one.new_clip) == 8
        assert torch.equal(one.old_clip[-1], one.old.image)
        assert torch.equal(one.new_clip[0], one.new.image)
        if one.kind is not Kind.OTHER_WORLD:
            views = [filmed(one.seed, view.frame_index, SIZE) for view in (one.old, one.new)]
            assert (max(shared(*views), shared(*reversed(views))) < 0.02) == (one.kind is Kind.SAME_WORLD)


def test_the_truth_of_a_place_is_that_of_its_cameras(found: list[Candidate]) -> None:
    one = found[0]
    old, new = (filmed(one.seed, view.frame_index, SIZE) for view in (one.old, one.new))
    motion = torch.linalg.inv(new.world_from_camera) @ old.world_from_camera
    assert one.new_from_old is not None
    assert float(rotation_angle_deg(motion[:3, :3].T @ one.new_from_old.rotation)) < 1e-6
    torch.testing.assert_close(one.metres * one.new_from_old.translation, motion[:3, 3])
    assert min(shared(old, new), shared(new, old)) >= 0.3
    assert one.old.frame_index <= one.new.frame_index - 60
    error = LoopError.of(one.new_from_old, one)
    assert error is not None
    assert error.is_right
    assert error.shift_m == pytest.approx(0)


def test_a_view_shares_all_with_itself_and_nothing_with_what_is_behind_it() -> None:
    view = filmed(HOUSE, 60)
    assert shared(view, view) == pytest.approx(1)
    turned = view.world_from_camera.clone()
    turned[:3, [0, 2]] *= -1
    assert shared(view, replace(view, world_from_camera=turned)) == 0


def judged(kind: Kind, num_agreeing: int, share: float, turn_deg: float = 0.5, disagrees_deg: float = 3.0) -> Judged:
    evidence = Evidence(
        new_from_old=Similarity(torch.tensor(1.0), torch.eye(3), torch.zeros(3)),
        num_matches=200,
        num_agreeing=num_agreeing,
        turn_deviation_rad=0.005,
        overlap=0.5,
        depth_agreement=share,
        colour_agreement=share,
        texture_agreement=share,
    )
    error = LoopError(turn_deg=turn_deg, shift_m=0.02, scale_percent=1.0, shift=0.01)
    return Judged(
        kind=kind,
        family="house",
        seed=8,
        old_frame=1,
        new_frame=100,
        evidence=evidence,
        error=error if kind is Kind.TRUE else None,
        side_error=error if kind is Kind.TRUE else None,
        disagreement=Disagreement(turn_deg=disagrees_deg, shift=0.05, log_scale=0.02),
        log_confidence=1.0,
    )


GOOD = [judged(Kind.TRUE, 100 + number, 0.95) for number in range(20)]
BAD = [judged(Kind.OTHER_WORLD, 10, 0.5), judged(Kind.SAME_WORLD, 60, 0.96), judged(Kind.TRUE, 20, 0.6, turn_deg=30.0)]


def test_chosen_limits_keep_all_out_that_is_false_and_accept_what_is_right() -> None:
    card = choose_card([*GOOD, *BAD], "house")
    assert card.least_agreeing > 60
    assert 0.5 < card.least_depth_agreement <= 0.95
    assert card.side is not None
    assert card.side.turn_deg == pytest.approx(3.75)
    assert card.noise.rotation_rad == pytest.approx(0.0035, abs=1e-4)
    assert all(is_accepted(one, card, Method.BOTH) for one in GOOD)
    assert not any(is_accepted(one, card, Method.POINTS) for one in BAD)
    found = figures([*GOOD, *BAD], card, Method.BOTH)
    assert (found.num_true, found.num_false, found.num_accepted) == (21, 2, 20)
    assert (found.num_wrong, found.num_false_accepted) == (0, 0)
    assert found.recall_at_precision_1 == pytest.approx(20 / 21)
    assert found.turn_deg == pytest.approx((0.5, 0.5))
    strange = judged(Kind.TRUE, 110, 0.95, disagrees_deg=20.0)
    assert is_accepted(strange, card, Method.POINTS)
    assert not is_accepted(strange, card, Method.BOTH)


def test_a_card_of_points_alone_does_not_ask_the_network() -> None:
    card = choose_card([replace(one, disagreement=None, log_confidence=None) for one in [*GOOD, *BAD]], "house")
    assert card.side is None
    assert all(is_accepted(one, card, Method.BOTH) for one in GOOD)


def test_a_few_right_ones_are_too_few_to_choose_by() -> None:
    with pytest.raises(InputError, match="8 right loops at least"):
        choose_card([*GOOD[:5], *BAD], "house")


def test_the_command_judges_by_the_card_beside_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, figures_path = tmp_path / "model.safetensors", tmp_path / "figures.json"
    save_geometry(random_model(replace(TINY, sizes=(SIZE,)), torch.device("cpu")), path)
    with pytest.raises(SettingError, match="no limits for loops beside"):
        loop_pairs(model=str(path))
    with pytest.raises(SettingError, match="not chosen by test worlds"):
        loop_pairs(model=str(path), choose=True)
    noise = Spread(translation=0.01, rotation_rad=0.01, log_scale=0.01)
    card = LoopCard(
        least_agreeing=40,
        least_agreeing_share=0.3,
        least_depth_agreement=0.8,
        least_colour_agreement=0.9,
        least_texture_agreement=0.8,
        noise=noise,
    )
    card.save(path)
    loop_pairs(model=str(path), worlds=1, places=1, way=500, split=Split.VALIDATION, card=figures_path, as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads(figures_path.read_text())
    assert [row["method"] for row in record["rows"]] == list(Method)
    assert record["limits"] == card.to_record()
    assert [one["kind"] for one in record["candidates"]] == ["true", "same world"]
    loop_pairs(model=str(path), worlds=1, places=1, way=500, split=Split.VALIDATION, points_only=True)
    printed = capsys.readouterr().out
    assert "house, points" in printed
    assert "house, network" not in printed
    with pytest.raises(InputError, match="8 right loops at least"):
        loop_pairs(model=str(path), worlds=1, places=1, way=500, split=Split.VALIDATION, choose=True, points_only=True)
    assert loop_card_of(path) == card  # what was not chosen is not written


def test_two_processes_judge_the_same_as_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(random_model(replace(TINY, sizes=(SIZE,)), torch.device("cpu")), path)
    model = load_model_once(str(path))
    asked = [replace(SETTINGS, family=family) for family in (Family.HOUSE, Family.TABLE)]
    one = judge_worlds(model, asked, lambda _: None, points_only=False)
    ticks: list[int] = []
    with open_workers(2) as workers:
        several = judge_worlds_apart(str(path), asked, workers, ticks.append, points_only=False)
    assert [each.to_record() for each in several] == [each.to_record() for each in one]
    assert {each.kind for each in one} == set(Kind)
    assert ticks == [1] * 4
