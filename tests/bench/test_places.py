"""Places seen again: pairs are true revisits, errors and confidences are those of a session that saw just them."""

import json
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
import torch

from longtake.bench.places import (
    STRETCH,
    Belonging,
    PairQuality,
    PlaceQuality,
    PlaceSettings,
    find_places,
    measure_places,
    revisits,
)
from longtake.cli.bench_places import bench_places
from longtake.cli.options import processes_on
from longtake.errors import InputError, SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.runtime.build import SMALL, open_session
from longtake.spatial.overlap import overlaps
from longtake.types import Geometry
from longtake.weights.presets import TINY
from longtake.world.families import Family
from longtake.world.tour import Tour

SETTINGS = PlaceSettings(session=SMALL, num_places=2, size=(28, 42), way=300)


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(TINY, torch.device("cpu"))


@pytest.fixture(scope="module")
def found(model: GeometryModel) -> PlaceQuality:
    ticks: list[int] = []
    quality = measure_places(model, SETTINGS, ticks.append)
    assert sum(ticks) == SETTINGS.num_steps
    return quality


def is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    turned = float(rotation_angle_deg(one[:3, :3].T @ other[:3, :3]))
    return turned <= 25 and float((one[:3, 3] - other[:3, 3]).norm()) <= 0.5


def test_revisits_are_those_that_a_slow_rule_finds() -> None:
    """On a circle of 70 frames, walked nearly twice."""
    angle = torch.arange(120, dtype=torch.float64) * 2 * torch.pi / 70
    cameras = torch.eye(4, dtype=torch.float64).repeat(120, 1, 1)
    cameras[:, 0, 0] = cameras[:, 2, 2] = angle.cos()
    cameras[:, 0, 2], cameras[:, 2, 0] = angle.sin(), -angle.sin()
    cameras[:, 0, 3], cameras[:, 2, 3] = 1.3 * angle.cos(), 1.3 * angle.sin()
    near = [[is_near(one, other) for other in cameras] for one in cameras]
    slow = {
        (last - STRETCH + 1, first)
        for last in range(STRETCH - 1, len(cameras))
        for first in range(last + 40, len(cameras) - STRETCH + 1)
        if near[last][first] and not all(near[last][last:first])
    }
    assert slow
    assert set(map(tuple, revisits(cameras).tolist())) == slow


def test_one_who_never_leaves_does_not_come_back() -> None:
    assert not len(revisits(torch.eye(4, dtype=torch.float64).repeat(200, 1, 1)))


def test_places_are_of_worlds_of_the_split_and_the_same_each_time() -> None:
    places = list(find_places(SETTINGS))
    assert places == list(find_places(SETTINGS))
    assert {place.seed % 10 for place in places} == {9}
    assert all(place.new - place.old >= 40 + STRETCH - 1 for place in places)


def test_figures_are_those_of_a_session_that_saw_just_the_pair(model: GeometryModel, found: PlaceQuality) -> None:
    one, other = list(find_places(SETTINGS))[:2]
    frames = {}
    for place in (one, other):
        wanted = [*range(place.old, place.old + STRETCH), *range(place.new, place.new + STRETCH)]
        frames[place] = list(Tour(seed=place.seed, width=42, height=28).views_at(wanted))
    images = torch.stack([view.image for view in frames[one]])
    said = Geometry.join(list(open_session(model, SMALL, SETTINGS.size).run(images)))
    errors = []
    for new in range(STRETCH, 2 * STRETCH):
        turn = said.world_from_camera[0, :3, :3].double().T @ said.world_from_camera[new, :3, :3].double()
        true = frames[one][0].world_from_camera[:3, :3].T @ frames[one][new].world_from_camera[:3, :3]
        errors.append(float(rotation_angle_deg(true.T @ turn)))
    assert found.pairs[0].seed == one.seed
    assert found.pairs[0].turn_error_deg == pytest.approx(np.median(errors), abs=1e-4)
    assert found.pairs[0].belonging.confidence == pytest.approx(float(said.depth_confidence[STRETCH:].log().mean()))
    mixed = torch.cat([images[:STRETCH], torch.stack([view.image for view in frames[other][STRETCH:]])])
    strange = Geometry.join(list(open_session(model, SMALL, SETTINGS.size).run(mixed)))
    assert found.strange[0].confidence == pytest.approx(float(strange.depth_confidence[STRETCH:].log().mean()))
    for pair, geometry in ((found.pairs[0].belonging, said), (found.strange[0], strange)):
        shares = overlaps(geometry.depth, geometry.world_from_camera, geometry.intrinsics)
        best = [max(shares[new, old].item() for old in range(STRETCH)) for new in range(STRETCH, 2 * STRETCH)]
        assert pair.agreement == pytest.approx(np.mean(best))


def test_threshold_keeps_nine_tenths_of_the_true_pairs_and_strange_ones_below_are_told() -> None:
    pairs = tuple(
        PairQuality(
            seed=9,
            turn_error_deg=float(number),
            turn_deg=2.0,
            belonging=Belonging(confidence=float(number), agreement=number / 10),
        )
        for number in range(11)
    )
    strange = tuple(Belonging(confidence=each, agreement=0.05) for each in (-3.0, 0.5, 1.0, 7.0))
    quality = PlaceQuality(settings=SETTINGS, pairs=pairs, strange=strange)
    by_confidence, by_agreement = attrgetter("confidence"), attrgetter("agreement")
    assert (quality.threshold(by_confidence), quality.threshold(by_agreement)) == pytest.approx((1, 0.1))
    assert (quality.strange_told_share(by_confidence), quality.strange_told_share(by_agreement)) == (0.5, 1)
    assert (quality.turn_quantile_deg(0.5), quality.turn_quantile_deg(0.9), quality.still_deg) == (5, 9, 2)


def test_families_have_places_too(model: GeometryModel) -> None:
    quality = measure_places(model, replace(SETTINGS, family=Family.TABLE), lambda _: None)
    assert len(quality.pairs) == len(quality.strange) == 2


def test_ways_that_are_too_short_or_never_come_back_are_refused(model: GeometryModel) -> None:
    with pytest.raises(SettingError, match="ways of 56 frames at least"):
        replace(SETTINGS, way=55)
    with pytest.raises(SettingError, match="2 places at least"):
        replace(SETTINGS, num_places=1)
    with pytest.raises(InputError, match="comes back within 56 frames, but of 20 there were"):
        measure_places(model, replace(SETTINGS, way=56), lambda _: None)


def test_command_prints_a_line_for_each_family_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"model": "tiny", "places": 2, "way": 300, "family": "house,table", "size": "42x28"}
    bench_places(**options)
    said = capsys.readouterr().out
    assert "table" in said
    assert "The weights are random" in said
    bench_places(**options, as_json=True)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["family"], row["width"], row["num_places"]) for row in rows] == [("table", 42, 2), ("house", 42, 2)]


def test_two_processes_say_the_same_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for processes in (1, 2):
        bench_places(
            model="tiny", places=3, way=300, family="house,table", size="42x28", processes=processes, as_json=True
        )
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_gpu_is_not_shared_by_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert processes_on("cpu", 3) == 3
    assert capsys.readouterr().err == ""
    assert processes_on("cuda", 3) == 1
    assert "--processes is for a CPU" in capsys.readouterr().err
