"""A similarity found again from points that look alike: exact without noise, whatever the scale and the outliers."""

import numpy as np
import pytest
import torch
from jaxtyping import Float64

from longtake.places.pictures import DepthPicture
from longtake.places.registration import Motion, PointPairs, _agree, _samples, _votes, register

PICTURE = DepthPicture(
    colours=np.zeros((98, 126, 3)),
    depth=np.ones((98, 126)),
    unit=1.0,
    usable=np.ones((98, 126), dtype=bool),
    focal=np.array([84.0, 80.0]),
    centre=np.array([63.0, 49.0]),
)


def about_y(angle_rad: float) -> Float64[np.ndarray, "3 3"]:
    cosine, sine = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])


def exact_pairs(motion: Motion, count: int, rng: np.random.Generator) -> PointPairs:
    old = np.stack([rng.uniform(-1, 1, count), rng.uniform(-1, 1, count), rng.uniform(2, 5, count)], axis=1)
    new = motion.of_points(old)
    return PointPairs(old=old, new=new, old_pixels=PICTURE.projected(old), new_pixels=PICTURE.projected(new))


def with_outliers(pairs: PointPairs, share: float, rng: np.random.Generator) -> PointPairs:
    """The partners of some points are those of others."""
    moved = rng.permutation(len(pairs))[: int(share * len(pairs))]
    order = np.arange(len(pairs))
    order[moved] = np.roll(moved, 1)
    return PointPairs(
        old=pairs.old, old_pixels=pairs.old_pixels, new=pairs.new[order], new_pixels=pairs.new_pixels[order]
    )


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.2])
@pytest.mark.parametrize("outliers", [0.0, 0.6])
def test_exact_points_give_the_exact_similarity(scale: float, outliers: float) -> None:
    rng = np.random.default_rng(3)
    truth = Motion(np.array(scale), about_y(0.3), np.array([0.4, -0.1, 0.2]) * scale)
    pairs = with_outliers(exact_pairs(truth, 200, rng), outliers, rng)
    found = register(pairs, PICTURE, PICTURE, (7, 400))
    assert found is not None
    assert float(found.new_from_old.scale) == pytest.approx(scale, rel=1e-6)
    np.testing.assert_allclose(found.new_from_old.rotation, truth.rotation, atol=1e-6)
    np.testing.assert_allclose(found.new_from_old.translation, truth.translation, atol=1e-5)
    assert found.agrees.sum() >= (1 - outliers) * 200


def test_what_is_seen_outweighs_depths_that_are_wrong_by_a_tenth() -> None:
    """Depths that both views guess wrong, each for itself, cost next to nothing of the rotation."""
    rng = np.random.default_rng(5)
    truth = Motion(np.array(1.3), about_y(0.2), np.array([0.3, 0.05, -0.2]))
    pairs = exact_pairs(truth, 300, rng)
    noisy = PointPairs(
        old=pairs.old * rng.normal(1, 0.05, (300, 1)),
        new=pairs.new * rng.normal(1, 0.05, (300, 1)),
        old_pixels=pairs.old_pixels,
        new_pixels=pairs.new_pixels,
    )
    found = register(noisy, PICTURE, PICTURE, (7, 400))
    assert found is not None
    turned = truth.rotation.T @ found.new_from_old.rotation
    assert np.degrees(np.arccos(min((np.trace(turned) - 1) / 2, 1))) < 0.3
    assert np.linalg.norm(found.new_from_old.translation - truth.translation) < 0.03
    assert float(found.new_from_old.scale) == pytest.approx(1.3, rel=0.02)


def seen_with_noise(pairs: PointPairs, rng: np.random.Generator) -> PointPairs:
    """Each point a pixel or so beside where it is, and as far away as both networks guess it."""
    aside = [rng.normal(0, 1.0, (len(pairs), 2)) for _ in range(2)]
    old_pixels, new_pixels = pairs.old_pixels + aside[0], pairs.new_pixels + aside[1]
    return PointPairs(
        old=lifted(old_pixels, pairs.old[:, 2] * rng.normal(1, 0.05, len(pairs))),
        new=lifted(new_pixels, pairs.new[:, 2] * rng.normal(1, 0.05, len(pairs))),
        old_pixels=old_pixels,
        new_pixels=new_pixels,
    )


def lifted(pixels: Float64[np.ndarray, "points 2"], depth: Float64[np.ndarray, " points"]) -> np.ndarray:
    rays = (pixels - PICTURE.centre) / PICTURE.focal
    return np.concatenate([rays * depth[:, None], depth[:, None]], axis=1)


def on_a_wall(motion: Motion, count: int, width: float, rng: np.random.Generator) -> PointPairs:
    """Points of a square of a wall 3 m away."""
    old = np.stack([*rng.uniform(-width / 2, width / 2, (2, count)), np.full(count, 3.0)], axis=1)
    new = motion.of_points(old)
    return PointPairs(old=old, new=new, old_pixels=PICTURE.projected(old), new_pixels=PICTURE.projected(new))


@pytest.mark.parametrize("width", [0.8, 2.0, 3.0])
def test_the_turn_is_as_uncertain_as_it_says(width: float) -> None:
    truth = Motion(np.array(1.0), about_y(0.05), np.array([0.1, 0.0, 0.05]))
    rng, off, told = np.random.default_rng(11), [], []
    for _ in range(60):
        found = register(seen_with_noise(on_a_wall(truth, 80, width, rng), rng), PICTURE, PICTURE, (7, 400))
        assert found is not None
        turned = truth.rotation.T @ found.new_from_old.rotation
        off.append(np.arccos(min((np.trace(turned) - 1) / 2, 1)))
        told.append(found.turn_deviation_rad)
    assert 0.5 < np.sqrt(np.mean(np.square(off))) / np.mean(told) < 2


def test_the_turn_is_less_certain_the_closer_points_lie_together() -> None:
    truth, rng = Motion(np.array(1.0), about_y(0.05), np.array([0.1, 0.0, 0.05])), np.random.default_rng(0)
    found = [register(on_a_wall(truth, 80, width, rng), PICTURE, PICTURE, (7, 400)) for width in (3.0, 1.5, 0.6)]
    wide, narrow, narrowest = (each.turn_deviation_rad for each in found if each is not None)
    assert 2 * wide < narrow
    assert 2 * narrow < narrowest


def test_points_that_share_nothing_agree_on_nothing() -> None:
    rng = np.random.default_rng(1)
    one, other = (exact_pairs(Motion(np.array(1.0), np.eye(3), np.zeros(3)), 150, rng) for _ in range(2))
    pairs = PointPairs(old=one.old, old_pixels=one.old_pixels, new=other.new, new_pixels=other.new_pixels)
    found = register(pairs, PICTURE, PICTURE, (7, 400))
    assert found is None or found.agrees.sum() < 15


def test_few_points_and_a_scale_beyond_reason_give_nothing() -> None:
    rng = np.random.default_rng(2)
    still = Motion(np.array(1.0), np.eye(3), np.zeros(3))
    assert register(exact_pairs(still, 5, rng), PICTURE, PICTURE, (0, 1)) is None
    assert register(exact_pairs(still, 0, rng), PICTURE, PICTURE, (0, 1)) is None
    grown = Motion(np.array(4.0), np.eye(3), np.zeros(3))
    assert register(exact_pairs(grown, 100, rng), PICTURE, PICTURE, (0, 1)) is None


def test_points_that_coincide_break_nothing() -> None:
    one = exact_pairs(Motion(np.array(1.0), np.eye(3), np.zeros(3)), 1, np.random.default_rng(4))
    pairs = PointPairs(
        old=one.old.repeat(20, axis=0),
        new=one.new.repeat(20, axis=0),
        old_pixels=one.old_pixels.repeat(20, axis=0),
        new_pixels=one.new_pixels.repeat(20, axis=0),
    )
    assert register(pairs, PICTURE, PICTURE, (0, 1)) is None


def test_a_motion_and_its_inverse_undo_each_other() -> None:
    motion = Motion(np.array(1.7), about_y(1.1), np.array([0.4, -0.1, 0.2]))
    points = np.random.default_rng(0).normal(size=(10, 3))
    np.testing.assert_allclose(motion.inverse().of_points(motion.of_points(points)), points, atol=1e-12)
    there, back = motion.similarity(1.0, 1.0), motion.inverse().similarity(1.0, 1.0)
    np.testing.assert_allclose((there @ back).matrix.numpy(), np.eye(4), atol=1e-12)
    in_units = motion.similarity(2.0, 5.0).of_points(torch.from_numpy(2 * points))
    np.testing.assert_allclose(in_units.numpy(), 5 * motion.of_points(points), atol=1e-12)


def every_sample(pairs: PointPairs, rng: np.random.Generator) -> Motion:
    """The slow twin, with nothing left out."""
    chosen = rng.integers(len(pairs), size=(512, 3))
    old, new = pairs.old[chosen], pairs.new[chosen]
    from_old, from_new = old - old.mean(axis=1)[:, None], new - new.mean(axis=1)[:, None]
    left, values, right = np.linalg.svd(np.einsum("nki,nkj->nij", from_new, from_old))
    signs = np.ones_like(values)
    signs[:, 2] = np.sign(np.linalg.det(left) * np.linalg.det(right))
    rotation = np.einsum("nij,nj,njk->nik", left, signs, right)
    scale = (values * signs).sum(axis=1) / np.maximum((from_old * from_old).sum(axis=(1, 2)), 1e-12)
    turned = np.einsum("nij,nj->ni", rotation, old.mean(axis=1))
    return Motion(scale, rotation, new.mean(axis=1) - scale[:, None] * turned)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.4])
def test_samples_are_all_fits_that_neither_grow_nor_shrink_too_much(scale: float) -> None:
    rng = np.random.default_rng(5)
    motion = Motion(np.asarray(scale), about_y(0.4), np.array([0.3, -0.1, 0.5]))
    pairs = with_outliers(exact_pairs(motion, 60, rng), 0.8, rng)
    every = every_sample(pairs, np.random.default_rng(7))
    sane, found = every[(every.scale > 1 / 2.5) & (every.scale < 2.5)], _samples(pairs, np.random.default_rng(7))
    assert 0 < len(sane.scale) < 512
    np.testing.assert_array_equal(found.scale, sane.scale)
    np.testing.assert_array_equal(found.rotation, sane.rotation)
    np.testing.assert_array_equal(found.translation, sane.translation)


@pytest.mark.parametrize("outliers", [0.0, 0.5, 1.0])
def test_votes_are_the_pairs_that_agree_with_each_sample(outliers: float) -> None:
    rng = np.random.default_rng(6)
    motion = Motion(np.asarray(1.1), about_y(0.3), np.array([0.2, 0.1, -0.4]))
    pairs = with_outliers(exact_pairs(motion, 90, rng), outliers, rng)
    samples = _samples(pairs, np.random.default_rng(8))
    np.testing.assert_array_equal(
        _votes(samples, pairs, PICTURE), _agree(samples, pairs, PICTURE, wide=1.0).sum(axis=1)
    )
