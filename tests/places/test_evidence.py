"""What two rendered views say for being of one place: a similarity and shares, with the same bits on any threads."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from rendered_views import HOUSE, filmed, key_view, truth

from longtake.errors import InputError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.hub.load import random_model
from longtake.places.evidence import Evidence, examine
from longtake.places.kept_view import KeptView
from longtake.places.key_view import KeyView, shared_intrinsics
from longtake.places.pictures import DepthPicture
from longtake.runtime.build import open_session, usual_settings
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry
from longtake.weights.presets import TINY
from longtake.world.tour import Tour
from training.recipe import read_recipe, shipped_recipe


def errors(found: Similarity, true: Similarity, metres: float) -> tuple[float, float, float]:
    """Degrees, metres, and the ratio of scales."""
    turned = float(rotation_angle_deg(true.rotation.T @ found.rotation))
    return turned, float((true.translation - found.translation).norm()) * metres, float(found.scale / true.scale)


@pytest.fixture(scope="module")
def found() -> Evidence:
    evidence = examine(key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 70)))
    assert evidence is not None
    return evidence


@pytest.mark.parametrize(("old", "new"), [(40, 52), (60, 70), (150, 160)])
@pytest.mark.parametrize(("old_metres", "new_metres"), [(1.0, 1.0), (0.7, 1.6), (20.0, 0.5)])
def test_true_depths_in_any_units_give_the_true_similarity(
    old: int, new: int, old_metres: float, new_metres: float
) -> None:
    """Half a metre to 0.8 m apart, at 126x98 pixels."""
    before, after = filmed(HOUSE, old), filmed(HOUSE, new)
    evidence = examine(key_view(before, old_metres), key_view(after, new_metres))
    assert evidence is not None
    turned_deg, away_m, scale = errors(evidence.new_from_old, truth(before, after, old_metres, new_metres), new_metres)
    assert turned_deg < 0.8
    assert away_m < 0.06
    assert scale == pytest.approx(1, abs=0.015)
    assert evidence.num_agreeing > 60
    assert evidence.depth_agreement > 0.95
    assert evidence.colour_agreement > 0.93
    assert evidence.texture_agreement > 0.85


@pytest.mark.parametrize("size", sorted(set(read_recipe(shipped_recipe("micro-map")).film.sizes)))
def test_pictures_of_every_shape_that_micro_map_is_trained_on_are_compared_whole(size: tuple[int, int]) -> None:
    """The widest were halved each way, and 17 points agreed of the 51 that a card asked for."""
    old, new = Tour(seed=HOUSE, height=size[0], width=size[1]).views_at([60, 70])
    assert DepthPicture.of(key_view(old)).size == size
    assert KeptView.bytes_for(size) > 7 * size[0] * size[1]
    evidence = examine(key_view(old), key_view(new))
    assert evidence is not None
    assert evidence.num_agreeing > 60


def test_a_view_over_itself_agrees_in_everything() -> None:
    view = key_view(filmed(HOUSE, 60))
    evidence = examine(view, view)
    assert evidence is not None
    turned_deg, away_m, scale = errors(evidence.new_from_old, truth(filmed(HOUSE, 60), filmed(HOUSE, 60)), 1)
    assert (turned_deg, away_m, scale) == pytest.approx((0, 0, 1), abs=1e-6)
    assert evidence.agreeing_share > 0.99
    assert evidence.overlap == 1
    assert evidence.depth_agreement == pytest.approx(1)
    assert evidence.texture_agreement == pytest.approx(1)


@pytest.mark.parametrize(("seed", "frame"), [(HOUSE, 160), (HOUSE, 20), (28, 70), (38, 30)])
def test_views_of_other_places_agree_in_little(seed: int, frame: int) -> None:
    evidence = examine(key_view(filmed(HOUSE, 70)), key_view(filmed(seed, frame)))
    assert evidence is None or (evidence.num_agreeing < 30 and evidence.texture_agreement < 0.7)


def test_what_has_no_depth_is_left_out() -> None:
    old, new = key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 70))
    holes = old.depth.clone()
    holes[:30], holes[30:40], holes[40:50] = torch.nan, torch.inf, 0.0
    trust = new.depth_confidence.clone()
    trust[:, :40] = 0
    evidence = examine(replace(old, depth=holes), replace(new, depth_confidence=trust))
    assert evidence is not None
    turned_deg, away_m, _ = errors(evidence.new_from_old, truth(filmed(HOUSE, 60), filmed(HOUSE, 70)), 1)
    assert turned_deg < 1.5
    assert away_m < 0.1


def test_nothing_is_found_without_depth_or_without_anything_to_see() -> None:
    old, new = key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 70))
    assert examine(replace(old, depth=torch.full_like(old.depth, torch.nan)), new) is None
    assert examine(replace(old, image=torch.zeros_like(old.image)), new) is None


def test_larger_pictures_are_made_smaller_and_say_the_same() -> None:
    before, after = filmed(HOUSE, 60, (392, 504)), filmed(HOUSE, 70, (392, 504))
    evidence = examine(key_view(before), key_view(after))
    assert evidence is not None
    turned_deg, away_m, scale = errors(evidence.new_from_old, truth(before, after), 1)
    assert turned_deg < 0.8
    assert away_m < 0.06
    assert scale == pytest.approx(1, abs=0.015)


def test_floats_and_bytes_of_one_picture_give_nearly_the_same(found: Evidence) -> None:
    old, new = filmed(HOUSE, 60), filmed(HOUSE, 70)
    evidence = examine(replace(key_view(old), image=old.image), replace(key_view(new), image=new.image))
    assert evidence is not None
    assert errors(evidence.new_from_old, found.new_from_old, 1)[0] < 0.3


_IN_FOUR_THREADS = """
import sys
import torch
torch.set_num_threads(4)
from longtake.places.evidence import examine
from longtake.places.key_view import KeyView
parts = torch.load(sys.argv[1])
found = examine(KeyView(**parts["old"]), KeyView(**parts["new"]))
shares = [found.overlap, found.depth_agreement, found.colour_agreement, found.texture_agreement]
print([float(number).hex() for number in [*found.new_from_old.matrix.flatten().tolist(), *shares]])
"""


def exactly(found: Evidence) -> list[str]:
    """All its numbers, to the last bit."""
    shares = [found.overlap, found.depth_agreement, found.colour_agreement, found.texture_agreement]
    return [float(number).hex() for number in [*found.new_from_old.matrix.flatten().tolist(), *shares]]


def parts(view: KeyView) -> dict[str, object]:
    return {field.name: getattr(view, field.name) for field in fields(view)}


def test_evidence_has_the_same_bits_on_any_number_of_threads(found: Evidence, tmp_path: Path) -> None:
    """Here on as many as tests run on; four in a process of its own, for libraries are told when they are loaded."""
    views = {"old": parts(key_view(filmed(HOUSE, 60))), "new": parts(key_view(filmed(HOUSE, 70)))}
    torch.save(views, tmp_path / "views.pt")
    four = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "4")
    done = subprocess.run(
        [sys.executable, "-c", _IN_FOUR_THREADS, str(tmp_path / "views.pt")],
        env=os.environ | four | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(exactly(found))


def test_the_same_views_give_the_same_bits_again(found: Evidence) -> None:
    again = examine(key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 70)))
    assert again is not None
    assert exactly(again) == exactly(found)


def test_a_view_of_parts_that_do_not_fit_is_refused() -> None:
    view = key_view(filmed(HOUSE, 60))
    with pytest.raises(InputError, match="of one size"):
        replace(view, depth=view.depth[1:])
    with pytest.raises(InputError, match="of one size"):
        replace(view, image=view.image[:1])
    with pytest.raises(InputError, match="positive focal lengths"):
        replace(view, intrinsics=-view.intrinsics)
    with pytest.raises(InputError, match="positive focal lengths"):
        replace(view, intrinsics=view.intrinsics * torch.nan)


def test_shared_intrinsics_are_the_median_of_all_guesses() -> None:
    guesses = [torch.eye(3) * focal for focal in (80.0, 84.0, 150.0)]
    assert torch.equal(shared_intrinsics(guesses), torch.eye(3) * 84)
    assert torch.equal(shared_intrinsics(torch.stack(guesses)), torch.eye(3) * 84)
    with pytest.raises(InputError, match="one frame at least"):
        shared_intrinsics([])


def test_a_view_is_one_frame_of_a_geometry() -> None:
    session = open_session(random_model(TINY, torch.device("cpu")), usual_settings(TINY), (28, 42))
    images = torch.rand(9, 3, 28, 42, generator=torch.Generator().manual_seed(0))
    geometry = Geometry.join(list(session.run(images)))
    view = KeyView.of(geometry, 8, images[8], shared_intrinsics(geometry.intrinsics))
    assert view.frame_index == 8
    assert torch.equal(view.depth, geometry.depth[8])
    assert torch.equal(view.depth_confidence, geometry.depth_confidence[8])
