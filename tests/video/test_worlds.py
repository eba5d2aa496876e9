"""Worlds as videos show what a tour shows, and draw only what is wanted."""

from itertools import islice

import numpy as np
import pytest

from longtake.errors import InputError, LongtakeError, SettingError
from longtake.video import worlds
from longtake.video.sampling import FrameSampling
from longtake.video.worlds import WorldTour, open_world
from longtake.world.families import Family
from longtake.world.tour import Tour

TOUR = Tour(seed=5, width=40, height=30, fps=8.0)


def test_frames_are_those_of_the_tour() -> None:
    source = WorldTour(TOUR, num_frames=6)
    frames = list(source.frames())
    views = list(islice(TOUR.views(), 6))
    assert source.num_frames == 6
    assert [frame.timestamp_s for frame in frames] == [view.timestamp_s for view in views]
    for frame, view in zip(frames, views, strict=True):
        expected = (view.image.movedim(0, -1) * 255).round().byte().numpy()
        np.testing.assert_array_equal(frame.image, expected)


def test_skipped_and_unsampled_frames_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    source = WorldTour(TOUR, FrameSampling(stride=2), num_frames=12)
    expected = list(source.frames())
    drawn: list[int] = []
    render = worlds.render

    def counted(*arguments: object) -> object:
        drawn.append(1)
        return render(*arguments)

    monkeypatch.setattr(worlds, "render", counted)
    resumed = list(source.frames(4))
    assert len(drawn) == 1 + 2
    assert [frame.index for frame in resumed] == [4, 5]
    for one, other in zip(resumed, expected[4:], strict=True):
        np.testing.assert_array_equal(one.image, other.image)


def test_world_without_a_length_goes_on() -> None:
    source = open_world("world:5?size=16x12")
    assert source.num_frames is None
    assert not source.is_live
    assert len(list(islice(source.frames(), 3))) == 3
    assert len(list(open_world("world:5?size=16x12", FrameSampling(end_s=0.4)).frames())) == 4


def test_world_is_read_as_people_write_it() -> None:
    frames = list(open_world("world:7?frames=2&size=32x24&fps=4").frames())
    assert [frame.timestamp_s for frame in frames] == [0.0, 0.25]
    assert frames[0].image.shape == (24, 32, 3)
    assert open_world("world:7?frames=2").name == "world 7"
    assert next(open_world("world:7").frames()).image.shape == (336, 448, 3)


@pytest.mark.parametrize(
    "text",
    [
        "world:",
        "world:x",
        "world:-1",
        "world:1.5",
        "world:1?frames=a",
        "world:1?size=5",
        "world:1?size=axb",
        "world:1?fps=",
    ],
)
def test_worlds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="Expected a world such as world:7") as caught:
        open_world(text)
    assert f"but got '{text}'" in str(caught.value)


def test_settings_without_meaning_are_refused() -> None:
    with pytest.raises(InputError, match="A world has frames, size and fps, but no colour; write world:7"):
        open_world("world:1?colour=red")
    with pytest.raises(SettingError, match="Expected a world of 1 frame at least, but got 0"):
        open_world("world:1?frames=0")
    with pytest.raises(SettingError):
        open_world("world:1?size=0x5")
    for fps in ("0", "nan", "-3", "inf"):
        with pytest.raises((InputError, SettingError)):
            open_world(f"world:1?fps={fps}")


@pytest.mark.parametrize(
    "text",
    ["world:" + "9" * 400, "world:9?frames=" + "9" * 400, "world:9?size=99999x99999", "world:9?fps=" + "9" * 400],
)
def test_numbers_without_end_are_one_sentence(text: str) -> None:
    with pytest.raises(LongtakeError):
        open_world(text)


def test_another_walk_is_part_of_the_address() -> None:
    source = open_world("world:9?walk=2&frames=2&size=32x24")
    assert source.name == "world 9, walk 2"
    assert source.identity == {"width": 32, "height": 24, "walk": 2}
    for frame, view in zip(source.frames(), Tour(seed=9, width=32, height=24, walk=2).views(), strict=False):
        np.testing.assert_array_equal(frame.image, (view.image.movedim(0, -1) * 255).round().byte().numpy())


def test_a_family_is_part_of_the_address() -> None:
    source = open_world("world:9?family=outdoors&frames=2&size=32x24")
    assert source.name == "world 9 of outdoors"
    assert source.identity == {"width": 32, "height": 24, "family": "outdoors"}
    assert not source.shows_world  # the bundled models know houses
    views = Tour(seed=9, width=32, height=24, family=Family.OUTDOORS).views()
    for frame, view in zip(source.frames(), views, strict=False):
        np.testing.assert_array_equal(frame.image, (view.image.movedim(0, -1) * 255).round().byte().numpy())
    with pytest.raises(SettingError, match="no family of worlds 'moon'; choose house, rooms"):
        open_world("world:9?family=moon")
