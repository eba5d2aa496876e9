"""A candidate is believed only if points, depths, colours and the network agree; looking aside leaves no trace."""

from dataclasses import replace

import pytest
import torch
from rendered_views import HOUSE, filmed, key_view, truth
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model, random_model
from longtake.places.evidence import examine
from longtake.places.loop_card import LoopCard, SideLimits
from longtake.places.loops import Spread
from longtake.places.side_look import Clips, SideLook
from longtake.places.verification import Disagreement, Doubt, Verifier, between_windows, median_depth
from longtake.runtime.build import open_session, usual_settings
from longtake.types import Geometry
from longtake.weights.presets import TINY

NOISE = Spread(translation=0.01, rotation_rad=0.008, log_scale=0.012)
CARD = LoopCard(
    least_agreeing=40,
    least_agreeing_share=0.3,
    least_depth_agreement=0.8,
    least_colour_agreement=0.9,
    least_texture_agreement=0.8,
    noise=NOISE,
)
LIMITS = SideLimits(turn_deg=8.0, shift=0.2, log_scale=0.1)
OLD, NEW = key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 70), metres=1.6)
"""One place."""


@pytest.fixture(scope="module")
def tiny() -> GeometryModel:
    return random_model(TINY, torch.device("cpu"))


def clips_of(size: tuple[int, int]) -> Clips:
    pixels = torch.rand(10, 3, *size, generator=torch.Generator().manual_seed(1))
    return Clips(old=pixels[:8], new=pixels[8:])


def test_a_true_loop_is_believed_and_says_how_exact_it_is() -> None:
    verdict = Verifier(CARD).verify(OLD, NEW)
    assert verdict.is_accepted
    true = truth(filmed(HOUSE, 60), filmed(HOUSE, 70), new_metres=1.6)
    away = Disagreement.between(verdict.new_from_old, true, median_depth(NEW))
    assert away.turn_deg < 0.8
    assert away.log_scale < 0.015
    assert verdict.noise is not None
    assert verdict.noise.translation == pytest.approx(0.01 * median_depth(NEW))
    assert verdict.noise.rotation_rad == NOISE.rotation_rad


def test_a_loop_between_cameras_is_one_between_their_windows() -> None:
    """Windows whose frames are the world in other units: what lies at one place is led to itself."""
    old, new = filmed(HOUSE, 60), filmed(HOUSE, 70)
    poses = [view.world_from_camera.clone() for view in (old, new)]
    poses[0][:3, 3] /= 0.7
    poses[1][:3, 3] /= 1.6
    found = between_windows(truth(old, new, 0.7, 1.6), *poses)
    points = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.of_points(points / 1.6), points / 0.7)


def test_a_place_of_which_little_is_seen_in_common_is_not_believed_though_its_points_agree() -> None:
    """A step to the side explains a small part of a wall as well as a turn does."""
    usable = torch.zeros_like(OLD.depth)
    usable[42:72, 56:86] = 1
    verdict = Verifier(replace(CARD, least_agreeing=6, least_agreeing_share=0.0)).verify(
        replace(OLD, depth=OLD.depth * usable), NEW
    )
    assert verdict.doubt is Doubt.VAGUE


def test_another_place_is_not_believed() -> None:
    for seed, frame in [(HOUSE, 160), (28, 70), (38, 30)]:
        verdict = Verifier(CARD).verify(OLD, key_view(filmed(seed, frame)))
        assert not verdict.is_accepted
        assert verdict.noise is None


@pytest.mark.parametrize(
    ("card", "doubt"),
    [
        (replace(CARD, least_agreeing=5000), Doubt.FEW_POINTS),
        (replace(CARD, least_agreeing_share=1.0), Doubt.SMALL_SHARE),
        (replace(CARD, least_depth_agreement=1.0), Doubt.DEPTHS),
        (replace(CARD, least_colour_agreement=1.0), Doubt.COLOURS),
        (replace(CARD, least_texture_agreement=1.0), Doubt.TEXTURES),
    ],
)
def test_every_limit_of_a_card_can_refuse(card: LoopCard, doubt: Doubt) -> None:
    verdict = Verifier(card).verify(OLD, NEW)
    assert verdict.doubt is doubt
    assert (verdict.evidence is None) == (doubt in (Doubt.FEW_POINTS, Doubt.SMALL_SHARE))  # more is asked only then


def test_a_view_without_depth_matches_nothing() -> None:
    verdict = Verifier(CARD).verify(replace(OLD, depth=torch.zeros_like(OLD.depth)), NEW)
    assert verdict.doubt is Doubt.NOTHING_MATCHES


def test_a_network_that_knows_nothing_objects(tiny: GeometryModel) -> None:
    """Its weights are random: what it says of a jump of half a metre is not what points say."""
    verifier = Verifier(replace(CARD, side=LIMITS), SideLook(tiny, usual_settings(TINY)))
    verdict = verifier.verify(OLD, NEW, clips_of((98, 126)))
    assert verdict.doubt is Doubt.NETWORK
    assert verdict.side is not None
    assert verdict.side.exceeds(LIMITS)


def test_the_network_is_asked_only_about_what_points_speak_for(tiny: GeometryModel) -> None:
    """Clips of a size that it would refuse show that it never looked."""
    verifier = Verifier(replace(CARD, side=LIMITS, least_agreeing=5000), SideLook(tiny, usual_settings(TINY)))
    odd = Clips(old=torch.zeros(8, 3, 5, 5), new=torch.zeros(1, 3, 5, 5))
    assert verifier.verify(OLD, NEW, odd).doubt is Doubt.FEW_POINTS


@pytest.mark.extra
def test_micro_map_agrees_with_points_about_a_house_it_never_saw() -> None:
    """Frames without a jump, on which its word is good."""
    model = load_model("micro-map")
    look = SideLook(model, usual_settings(model.config))
    images = torch.stack([filmed(HOUSE, frame).image for frame in range(53, 69)])
    old, new = key_view(filmed(HOUSE, 60)), key_view(filmed(HOUSE, 61))
    word = look.look(old, new, Clips(old=images[:8], new=images[8:]))
    evidence = examine(old, new)
    assert word is not None
    assert evidence is not None
    away = Disagreement.between(word.new_from_old, evidence.new_from_old, median_depth(new))
    assert not away.exceeds(LIMITS)


def test_looking_aside_leaves_no_trace_in_the_main_session(tiny: GeometryModel) -> None:
    size, settings = (28, 42), usual_settings(TINY)
    frames = torch.rand(20, 3, *size, generator=torch.Generator().manual_seed(2))
    views = [key_view(filmed(HOUSE, frame, size)) for frame in (60, 70)]
    alone, beside = (open_session(tiny, settings, size) for _ in range(2))
    look = SideLook(tiny, settings)
    said = []
    for number, frame in enumerate(frames):
        if number in (3, 8, 15):  # while the scale block fills, right after it, and later
            said.append(look.look(views[0], views[1], clips_of(size)))
        expected, got = alone.step(frame), beside.step(frame)
        assert got.frame_index == expected.frame_index
        for name in ("pose_encoding", "depth", "depth_confidence", "descriptor"):
            assert torch.equal(getattr(got, name), getattr(expected, name))
    matrices = [word.new_from_old.matrix for word in said if word is not None]
    assert len(matrices) == 3
    assert all(torch.equal(matrix, matrices[0]) for matrix in matrices)


def test_a_side_look_is_what_a_session_says_of_the_same_frames(tiny: GeometryModel) -> None:
    """In the units of the views: the session's own where these have its depths."""
    size, settings = (28, 42), usual_settings(TINY)
    clips = clips_of(size)
    images: Tensor = torch.cat([clips.old, clips.new])
    found = Geometry.join(list(open_session(tiny, settings, size).run(images)))
    old, new = key_view(filmed(HOUSE, 60, size)), key_view(filmed(HOUSE, 70, size))
    old, new = replace(old, depth=2 * found.depth[7]), replace(new, depth=3 * found.depth[8])
    word = SideLook(tiny, settings).look(old, new, clips)
    assert word is not None
    cameras = found.world_from_camera.double()
    motion = torch.linalg.inv(cameras[8]) @ cameras[7]
    assert float(word.new_from_old.scale) == pytest.approx(1.5)
    torch.testing.assert_close(word.new_from_old.rotation, motion[:3, :3], atol=1e-5, rtol=0)
    torch.testing.assert_close(word.new_from_old.translation, 3 * motion[:3, 3], atol=1e-4, rtol=1e-4)
    nothing = replace(old, depth=torch.full_like(old.depth, torch.nan))
    assert SideLook(tiny, settings).look(nothing, new, clips) is None


def test_what_is_missing_is_said_in_one_sentence(tiny: GeometryModel) -> None:
    card = replace(CARD, side=LIMITS)
    with pytest.raises(SettingError, match="give a side look too"):
        Verifier(card)
    with pytest.raises(InputError, match="needs clips of both views"):
        Verifier(card, SideLook(tiny, usual_settings(TINY))).verify(OLD, NEW)
    with pytest.raises(InputError, match="clips of frames of one size"):
        Clips(old=torch.zeros(8, 3, 28, 42), new=torch.zeros(8, 3, 42, 28))
    with pytest.raises(InputError, match="clips of frames of one size"):
        Clips(old=torch.zeros(0, 3, 28, 42), new=torch.zeros(8, 3, 28, 42))
