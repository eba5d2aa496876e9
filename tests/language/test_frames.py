from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.language.frames import (
    FrameSize,
    PictureFormat,
    PixelRows,
    pixel_rows,
    resize,
    smart_resize,
    smart_resize_clip,
)

SMALL = PictureFormat(min_pixels=3136, max_pixels=50_176)
RESIZED = ["video_even_4x90x120", "video_odd_3x64x100", "video_upscale_2x20x34"]

Case = dict[str, Tensor]


def noise(num_frames: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(num_frames * 1000 + height)
    return torch.randint(0, 256, (num_frames, 3, height, width), dtype=torch.uint8, generator=generator)


def rows_of(frames: Tensor, *, pad: bool = False) -> PixelRows:
    return pixel_rows(frames, SMALL.fit(frames.shape[2], frames.shape[3]), pad=pad)


def check_sums(told: dict[str, Any], rows: Tensor) -> None:
    assert list(rows.shape) == told["shape"]
    assert float(rows.double().sum()) == pytest.approx(told["sum"], abs=1e-4)
    assert float(rows.double().abs().sum()) == pytest.approx(told["abs_sum"], abs=1e-4)
    assert rows.flatten()[:5].tolist() == pytest.approx(told["first5"], abs=1e-6)


def test_sizes_are_those_of_the_published_processors(vlm_preprocess: dict[str, Any]) -> None:
    table = vlm_preprocess["smart_resize"]
    for row in table:
        limits = {"min_pixels": row["min_pixels"], "max_pixels": row["max_pixels"]}
        if row["model"] == "qwen2_5":
            got = smart_resize(row["h"], row["w"], row["factor"], **limits)
            assert got.height * got.width // row["factor"] ** 2 == row["tokens_per_temporal_grid"], row
        else:
            got = smart_resize_clip(row["num_frames"], row["h"], row["w"], row["factor"], **limits)
        assert [got.height, got.width] == row["out"], row
    assert len(table) == 144


def test_means_are_those_of_the_published_processor(vlm_preprocess: dict[str, Any]) -> None:
    assert list(PictureFormat().mean) == vlm_preprocess["image_mean"]
    assert list(PictureFormat().std) == vlm_preprocess["image_std"]


@pytest.mark.parametrize("name", RESIZED)
def test_resized_frames_are_identical(name: str, vlm_preprocess_case: Callable[[str], Case]) -> None:
    case = vlm_preprocess_case(name)
    frames, want = case["frames_u8"], case["resized_u8"]
    fit = SMALL.fit(frames.shape[2], frames.shape[3])
    assert fit.resized == FrameSize(want.shape[2], want.shape[3])
    assert torch.equal(resize(frames, fit.resized), want)
    assert torch.equal(resize(frames.to(memory_format=torch.channels_last), fit.resized), want)


def test_a_frame_made_much_smaller_is_identical(vlm_preprocess_case: Callable[[str], Case]) -> None:
    case = vlm_preprocess_case("video_downscale_2x300x500")
    frames, want = case["frames_u8"].expand(-1, 3, -1, -1), case["resized_u8"]
    assert torch.equal(resize(frames, SMALL.fit(300, 500).resized), want.expand(-1, 3, -1, -1))


@pytest.mark.parametrize("name", [*RESIZED, "video_single_1x84x112"])
def test_rows_of_pixels_are_identical(
    name: str, vlm_preprocess: dict[str, Any], vlm_preprocess_case: Callable[[str], Case]
) -> None:
    case, told = vlm_preprocess_case(name), vlm_preprocess["cases"][name]
    got = rows_of(case["frames_u8"], pad=True)
    assert list(got.grid) == told["grid_thw"] == case["video_grid_thw"][0].tolist()
    assert torch.equal(got.values[::4], case["pixel_values_videos"])
    check_sums(told["pixel_values_check"], got.values)


def test_a_picture_is_a_clip_of_one_frame_shown_twice(vlm_preprocess_case: Callable[[str], Case]) -> None:
    case = vlm_preprocess_case("image_90x120")
    got = pixel_rows(case["image_u8"], PictureFormat(max_pixels=1_003_520).fit(90, 120), pad=True)
    assert list(got.grid) == case["image_grid_thw"][0].tolist()
    assert torch.equal(got.values[::4], case["pixel_values_torchvision"])


def test_rows_of_every_streamed_chunk_have_the_golden_sums(
    vlm_index: dict[str, Any], vlm_case: Callable[[str], Case]
) -> None:
    checked = 0
    for name, told in vlm_index.items():
        chunks = list(zip(told.get("frames", {}), told.get("pixel_values_check", []), strict=False))
        for key, sums in chunks:
            check_sums(sums, rows_of(vlm_case(name)[key], pad=True).values)
            checked += 1
    assert checked == 9


def slow_rows(frames: Tensor, fit_rows: int, fit_columns: int) -> Tensor:
    """Patch by patch, from frames that need no resizing."""
    mean, std = torch.tensor(SMALL.mean).view(3, 1, 1), torch.tensor(SMALL.std).view(3, 1, 1)
    pixels = (frames / 255 - mean) / std
    found = []
    for pair in pixels.split(2):
        for row in range(fit_rows):
            for column in range(fit_columns):
                for y, x in ((0, 0), (0, 14), (14, 0), (14, 14)):
                    top, left = 28 * row + y, 28 * column + x
                    found.append(pair[:, :, top : top + 14, left : left + 14].transpose(0, 1).flatten())
    return torch.stack(found)


def test_rows_run_over_grids_tokens_and_the_patches_of_a_token() -> None:
    frames = noise(4, 56, 84)
    got = rows_of(frames)
    assert got.grid == (2, 4, 6)
    assert torch.allclose(got.values, slow_rows(frames, 2, 3), atol=1e-5)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
@settings(deadline=None, max_examples=15)
def test_grids_one_by_one_are_the_whole_clip(pairs: list[int]) -> None:
    frames = noise(2 * sum(pairs), 40, 70)
    parts = [rows_of(part).values for part in frames.split([2 * count for count in pairs])]
    assert torch.equal(torch.cat(parts), rows_of(frames).values)


@given(st.integers(1, 3000), st.integers(1, 3000))
@settings(deadline=None, max_examples=200)
def test_a_size_is_whole_tokens_within_the_limits(height: int, width: int) -> None:
    if max(height, width) > 200 * min(height, width):
        return
    fit = PictureFormat(min_pixels=100_352, max_pixels=602_112).fit(height, width)
    assert fit.resized.height == 28 * fit.rows > 0
    assert fit.resized.width == 28 * fit.columns > 0
    assert fit.resized.height * fit.resized.width >= 100_352 or max(height, width) > 20 * min(height, width)
    assert fit.resized.height * fit.resized.width <= 602_112 or max(height, width) > 20 * min(height, width)


def test_a_full_hd_frame_is_2691_tokens() -> None:
    fit = PictureFormat().fit(1080, 1920)
    assert (fit.rows, fit.columns) == (39, 69)


def test_an_odd_frame_is_repeated_only_when_told() -> None:
    frames = noise(3, 28, 56)
    with pytest.raises(InputError, match=r"^Frames enter the model 2 at a time, but 3 came; hold the last one .*\.$"):
        rows_of(frames)
    padded = rows_of(frames, pad=True)
    assert torch.equal(padded.values, rows_of(torch.cat([frames, frames[-1:]])).values)


def test_a_clip_without_frames_is_refused() -> None:
    with pytest.raises(InputError, match=r"^A clip needs one frame at least, but it has none; show a frame first\.$"):
        rows_of(noise(0, 28, 28), pad=True)


def test_a_frame_of_another_size_is_refused() -> None:
    fit = SMALL.fit(60, 80)
    with pytest.raises(InputError, match=r"^Every frame of a stream must be 80x60 .* a frame of 60x80 came; .*\.$"):
        pixel_rows(noise(2, 80, 60), fit)


def test_a_frame_far_longer_than_narrow_is_refused() -> None:
    limits = {"min_pixels": 3136, "max_pixels": 50_176}
    assert smart_resize(10, 2000, 28, **limits).height == 28
    with pytest.raises(InputError, match=r"^A frame may be at most 200 times as long .* size is 2001x10; crop it\.$"):
        smart_resize(10, 2001, 28, **limits)
    with pytest.raises(InputError, match="at most 200 times"):
        smart_resize_clip(2, 2001, 10, 32, **limits)


def test_a_frame_without_pixels_is_refused() -> None:
    with pytest.raises(InputError, match=r"^A frame needs one pixel at least, but its size is 5x0; give another\.$"):
        SMALL.fit(0, 5)


def test_a_clip_of_one_frame_is_refused_where_limits_are_of_a_clip() -> None:
    with pytest.raises(InputError, match=r"^A clip of this model needs two frames .* but 1 came; show another\.$"):
        smart_resize_clip(1, 64, 64, 32, min_pixels=4096, max_pixels=65_536)


@pytest.mark.parametrize("limits", [(0, 5000), (5000, 4000), (100, 700)])
def test_limits_without_meaning_are_refused(limits: tuple[int, int]) -> None:
    with pytest.raises(SettingError, match=r"^Pixels of a frame must have limits .* came; raise the higher one\.$"):
        PictureFormat(min_pixels=limits[0], max_pixels=limits[1])


def test_limit_beyond_what_a_frame_may_take_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^Expected a limit of at most 16777216 pixels a frame, but 100000000 came"):
        PictureFormat(max_pixels=100_000_000)


@pytest.mark.parametrize("frames", [0, 65, 10**9])
def test_grid_of_more_frames_than_any_model_takes_is_refused(frames: int) -> None:
    with pytest.raises(
        SettingError, match=rf"^Expected grids of 1 to 64 frames, but {frames} came as temporal patch\.$"
    ):
        PictureFormat(temporal_patch=frames)
