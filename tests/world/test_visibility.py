"""First and last sightings, clear and faint."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from longtake.world.things import Sightings
from longtake.world.visibility import Visibility, clear_pixels, until


def test_clear_is_half_a_percent_of_the_image(synthetic_sightings: Callable[..., Sightings]) -> None:
    sightings = synthetic_sightings(0)
    assert clear_pixels(replace(sightings, image_pixels=1000)) == 5
    assert clear_pixels(replace(sightings, image_pixels=1001)) == 6


def test_first_and_last_frames_equal_a_search_frame_by_frame(synthetic_sightings: Callable[..., Sightings]) -> None:
    for seed in range(20):
        sightings = synthetic_sightings(seed, num_frames=40)
        watched = Visibility.of(sightings)
        for thing in range(len(sightings.things)):
            of_thing = sightings.pixels[:, thing].tolist()
            clear = [frame for frame, pixels in enumerate(of_thing) if pixels >= clear_pixels(sightings)]
            visible = [frame for frame, pixels in enumerate(of_thing) if pixels > 0]
            assert np.flatnonzero(watched.clear[:, thing]).tolist() == clear
            assert (watched.first_clear[thing], watched.last_clear[thing]) == ([*clear, 40][0], [-1, *clear][-1])
            assert (watched.first_visible[thing], watched.last_visible[thing]) == (
                [*visible, 40][0],
                [-1, *visible][-1],
            )


def test_beginning_of_a_walk_has_its_first_frames(synthetic_sightings: Callable[..., Sightings]) -> None:
    sightings = synthetic_sightings(3, num_frames=40)
    beginning = until(sightings, 7)
    assert len(beginning) == 7
    for field in fields(sightings):
        whole, part = getattr(sightings, field.name), getattr(beginning, field.name)
        if isinstance(whole, np.ndarray):
            np.testing.assert_array_equal(part, whole[:7])
        else:
            assert part == whole
