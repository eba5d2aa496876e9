"""Pictures of every kind become the same bytes; whatever is no picture is one sentence."""

import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.api.pictures import as_pictures, as_rgb, missing_time, time_of
from longtake.errors import InputError
from longtake.video.frame import VideoFrame

PIXELS = np.random.default_rng(4).integers(0, 256, (5, 7, 3), dtype=np.uint8)
CHANNELS_FIRST = torch.from_numpy(PIXELS).permute(2, 0, 1)


@pytest.mark.parametrize(
    "picture",
    [
        VideoFrame(0, 0.0, PIXELS),
        PIXELS,
        np.asfortranarray(PIXELS),
        PIXELS[:, :, ::-1][:, :, ::-1],
        PIXELS.astype(np.float32) / 255,
        PIXELS.astype(np.float64) / 255,
        (PIXELS / 255).astype(np.float16),
        (PIXELS / 255).astype(">f4"),
        Image.fromarray(PIXELS),
        Image.fromarray(PIXELS).convert("RGBA"),
        CHANNELS_FIRST,
        CHANNELS_FIRST.contiguous(),
        CHANNELS_FIRST.float() / 255,
        (CHANNELS_FIRST.float() / 255).requires_grad_(),
        torch.from_numpy(PIXELS),
    ],
    ids=lambda picture: f"{type(picture).__name__} {getattr(picture, 'dtype', '')}",
)
def test_every_kind_of_picture_gives_the_same_bytes(picture: object) -> None:
    assert np.array_equal(as_rgb(picture), PIXELS)


def test_a_tensor_of_three_rows_is_channels_first() -> None:
    tensor = torch.zeros(3, 4, 3, dtype=torch.uint8)
    assert as_rgb(tensor).shape == (4, 3, 3)


def frame(image: object, **fields: object) -> VideoFrame:
    """A frame as a program might make it that nobody checks."""
    made = VideoFrame(0, 0.0, PIXELS)
    for name, value in {"image": image, **fields}.items():
        object.__setattr__(made, name, value)
    return made


def png() -> BytesIO:
    content = BytesIO()
    Image.fromarray(PIXELS).save(content, "PNG")
    return content


def closed_image() -> Image.Image:
    image = Image.open(png())
    image.close()
    return image


def cut_off_image() -> Image.Image:
    return Image.open(BytesIO(png().getvalue()[:-40]))


def filled(*shape: int, value: float) -> np.ndarray:
    return np.full(shape, value, np.float32)


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        ("walk.mp4", "Expected a picture as a frame of open_video, a numpy array .* but got str"),
        (None, "but got NoneType"),
        ([PIXELS], "but got list"),
        (PIXELS[:, :, 0], "Expected a picture of height x width x 3, but got 5 x 7; give pictures one by one, in RGB"),
        (PIXELS[None], "but got 1 x 5 x 7 x 3; give pictures one by one"),
        (np.moveaxis(PIXELS, -1, 0), "Expected a picture of height x width x 3, but got 3 x 5 x 7"),
        (np.zeros((5, 7, 4), np.uint8), "but got 5 x 7 x 4"),
        (np.zeros((0, 7, 3), np.uint8), "but got 0 x 7 x 3"),
        (np.zeros(()), "but got a single number"),
        (np.ma.masked_array(PIXELS, mask=True), r"got a masked array; fill it, as picture\.filled\(0\)"),
        (torch.zeros(4, 5, 7), "Expected a picture of 3 x height x width or height x width x 3, but got 4 x 5 x 7"),
        (torch.zeros(1, 3, 5, 7), "but got 1 x 3 x 5 x 7; give pictures one by one"),
        (PIXELS.astype(np.int32), "Expected pixels as bytes or floats, but got int32; convert them to uint8"),
        (PIXELS.astype(np.uint16), "Expected pixels as bytes or floats, but got .*uint16"),
        (PIXELS.astype(str), "Expected pixels as bytes or floats, but got <U"),
        (PIXELS.astype(np.float32), "Expected float pixels from 0 to 1, but they run from .* to 2"),
        (filled(5, 7, 3, value=-0.5), "Expected float pixels from 0 to 1, but they run from -0.5"),
        (filled(5, 7, 3, value=np.nan), "Expected finite pixels, but some are NaN"),
        (torch.full((3, 5, 7), torch.inf), "Expected finite pixels"),
        (Image.new("F", (7, 5)), "Expected a picture of whole numbers"),
        (VideoFrame(3, 0.1, None, "The file is damaged."), "The frame at 0.100 s has no picture: The file is damaged"),
        (frame(PIXELS * np.nan), "Expected finite pixels"),
        (frame(PIXELS.astype(np.int64)), "Expected pixels as bytes or floats, but got int64"),
        (frame(PIXELS[:, :, 0]), "Expected a picture of height x width x 3, but got 5 x 7"),
        (frame(PIXELS[:0]), "but got 0 x 7 x 3"),
        (frame(PIXELS.tolist()), "but got list"),
        (frame(None, timestamp_s="x", problem="It is damaged."), "Expected a time in seconds, but got 'x'"),
        (Image.new("RGB", (0, 5)), "Expected a picture of height x width x 3, but got 5 x 0 x 3"),
        (closed_image(), r"Expected a Pillow image with its pixels, but it cannot be read \(.*closed"),
        (cut_off_image(), r"Expected a Pillow image with its pixels, but it cannot be read \(.*truncated"),
        (torch.zeros(3, 5, 7, device="meta"), "Expected pixels in a plain tensor, but got one of the meta device"),
        (torch.zeros(3, 5, 7).to_sparse(), "but got a tensor that is sparse_coo; convert it to a dense one"),
        (torch.zeros(3, 5, 7).to_mkldnn(), "but got a tensor that is _mkldnn"),
        (torch.nested.nested_tensor([torch.zeros(5, 7)] * 3, layout=torch.jagged), "but got a tensor that is nested"),
        (torch.zeros(3, 5, 7).to(torch.float8_e4m3fn), "Expected pixels as bytes or floats, but got float8_e4m3fn"),
    ],
)
def test_what_is_no_picture_is_one_sentence(picture: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as refusal:
        as_rgb(picture)
    assert len(re.findall(r"\w\.(?: |$)", str(refusal.value))) <= 1
    assert "\n" not in str(refusal.value)


def test_one_picture_a_list_and_a_batch_are_lists() -> None:
    batch = torch.stack([CHANNELS_FIRST, CHANNELS_FIRST])
    for pictures, count in ((PIXELS, 1), (Image.fromarray(PIXELS), 1), ([PIXELS, PIXELS], 2), (batch, 2)):
        assert len(as_pictures(pictures)) == count
    assert as_pictures(7) == [7], "as_rgb refuses it"
    with pytest.raises(InputError, match="Expected pixels in a plain tensor"):
        as_pictures(batch.to_sparse())
    for empty in ([], np.zeros((0, 5, 7, 3), np.uint8), torch.zeros(0, 3, 5, 7)):
        with pytest.raises(InputError, match="Expected one picture at least, but got none"):
            as_pictures(empty)


def test_a_time_that_was_said_comes_before_the_frames_own() -> None:
    taken = VideoFrame(0, 2.5, PIXELS)
    assert (time_of(taken, None), time_of(taken, 3.0), time_of(PIXELS, None)) == (2.5, 3.0, None)
    assert time_of(replace(taken, timestamp_s=0.0), None) == 0.0


@pytest.mark.parametrize(
    "given",
    [True, np.True_, math.nan, math.inf, 10**400, 10**5000, "3", b"3", "x", 3 + 0j, [3.0], np.zeros(2), Decimal("NaN")],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_time_is_one_sentence(given: Any) -> None:
    for picture, timestamp_s in ((PIXELS, given), (frame(PIXELS, timestamp_s=given), None)):
        with pytest.raises(InputError, match=r"^Expected a time in seconds, but got [^\n]*\.$"):
            time_of(picture, timestamp_s)


def test_a_time_is_a_number_of_any_kind() -> None:
    for given in (2, np.float32(2), np.array(2), torch.tensor(2.0), Fraction(2), Decimal(2)):
        assert time_of(PIXELS, given) == 2.0
    with pytest.raises(InputError, match=r"Expected a time in seconds, but got tensor"):
        time_of(PIXELS, torch.tensor(2.0, device="meta"))


def test_what_is_no_picture_is_not_asked_for_its_time() -> None:
    with pytest.raises(InputError, match=r"Expected a picture as .*, but got str"):
        missing_time("hello", "step(picture, 0.5)")
    assert str(missing_time(PIXELS, "step(picture, 0.5)")).startswith(
        "Expected a time for each picture, in seconds, as step(picture, 0.5):"
    )
