"""Previews are the pictures they name, small, and their depth can be read back."""

import io

import numpy as np
import pytest
from PIL import Image
from shown import Shown

from longtake.server.previews import MOST_BYTES, KnownDepth, Snapshot, inverse_depth_bytes, small_picture


def gradient(size: tuple[int, int], near: float = 0.5, far: float = 8.0) -> np.ndarray:
    return np.linspace(near, far, size[0] * size[1], dtype=np.float32).reshape(size)


def snapshot(size: tuple[int, int] = (98, 126)) -> Snapshot:
    image = np.zeros((*size, 3), np.uint8)
    image[:, : size[1] // 2, 0] = 200
    known = KnownDepth(frame=3, time_s=0.3, depth=gradient(size), confidence=gradient(size, 1.0, 9.0))
    return Snapshot(frame=4, time_s=0.4, image=image, known=known)


def pixels(shown: Shown) -> np.ndarray:
    with Image.open(io.BytesIO(shown.payload), formats=["JPEG"]) as picture:
        return np.asarray(picture)


def test_each_is_a_jpeg_of_the_size_it_says() -> None:
    shown = [Shown.read(message) for message in snapshot().messages(64)]
    assert [(one.kind, one.codec, one.sequence) for one in shown] == [(4, 1, 4), (4, 1, 3), (4, 1, 3)]
    assert [one.fields["of"] for one in shown] == ["image", "depth", "confidence"]
    for one in shown:
        assert pixels(one).shape[:2] == (one.fields["height"], one.fields["width"]) == (50, 64)
    assert (shown[0].fields["frame"], shown[0].fields["time_s"]) == (4, 0.4)
    red = pixels(shown[0])[:, :, 0]
    assert red[:, :28].mean() > 180
    assert red[:, 36:].mean() < 20


def test_depth_is_read_back_as_the_page_says() -> None:
    _, depth, confidence = (Shown.read(message) for message in snapshot().messages(640))
    near, far = depth.fields["near"], depth.fields["far"]
    inverse = 1 / far + pixels(depth).astype(float) / 255 * (1 / near - 1 / far)
    assert np.median(np.abs(1 / inverse - gradient((98, 126))) / gradient((98, 126))) < 0.03
    assert pixels(confidence)[-1].mean() > pixels(confidence)[0].mean() + 100


def test_what_has_no_depth_is_far_and_a_wall_has_a_range_too() -> None:
    depth = np.array([[np.nan, 0.0, -1.0, np.inf, 1.0, 4.0]], np.float32)
    assert inverse_depth_bytes(depth, 1.0, 4.0).tolist() == [[0, 0, 0, 0, 255, 0]]
    for flat in (np.full((8, 8), 3.0, np.float32), np.zeros((8, 8), np.float32)):
        known = KnownDepth(frame=0, time_s=0.0, depth=flat, confidence=flat)
        shown = Snapshot(frame=0, time_s=0.0, image=np.zeros((8, 8, 3), np.uint8), known=known)
        fields = [Shown.read(message).fields for message in shown.messages(64)][1]
        assert 0 < fields["near"] < fields["far"]


def test_what_was_shown_is_not_shown_again() -> None:
    first = snapshot()
    later = Snapshot(frame=5, time_s=0.5, image=first.image, known=first.known)
    assert [Shown.read(message).fields["of"] for message in later.messages(64, first)] == ["image"]
    assert list(first.messages(64, first)) == []


@pytest.mark.parametrize("size", [(1, 1), (4000, 3000), (3, 5000)])
def test_pictures_of_any_size_become_small_ones(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    small = small_picture(noise)
    assert max(small.shape[:2]) == min(640, max(size))
    (message,) = Snapshot(frame=0, time_s=1e300, image=small).messages(640)
    assert len(message) <= MOST_BYTES + 1000
    assert min(Shown.read(message).fields[side] for side in ("width", "height")) >= 1
