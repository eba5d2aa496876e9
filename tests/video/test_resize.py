import io
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

from longtake.errors import InputError
from longtake.spatial.placement import Placement
from longtake.video.resize import Fit, Preprocessor, match_sizes, open_image, resize_image, upright_rgb


@pytest.fixture(scope="module")
def want(golden):
    return golden("preprocess")


@pytest.fixture
def picture(want):
    """A source picture by name, through a file as a user would hand it in."""

    def open_source(name):
        exif = Image.Exif()
        if name == "exif":
            exif[0x0112] = 6
        buffer = io.BytesIO()
        Image.fromarray(want[f"src_{name}"].numpy()).save(buffer, "png", exif=exif)
        return upright_rgb(Image.open(buffer))

    return open_source


made_with_this_pillow = pytest.mark.skipif(
    not PIL.__version__.startswith("13."),
    reason="golden pixels were made with Pillow 13, others resample a little apart",
)


@made_with_this_pillow
@pytest.mark.parametrize("name", ["land", "port", "rgba", "exif"])
@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
def test_pixels_equal_golden(want, picture, name, fit):
    assert torch.equal(resize_image(picture(name), fit, size=56).pixels, want[f"{fit}_{name}"])


def test_pixels_at_full_size_equal_golden(want, picture):
    pixels = resize_image(picture("big")).pixels
    assert pixels.shape == (3, 392, 518)
    assert torch.equal(want.thin("crop_big", pixels), want["crop_big"])


def test_pictures_of_one_batch_are_padded_to_a_common_size(want, picture):
    pictures = match_sizes([resize_image(picture(name), size=56) for name in ("land", "port", "rgba")])
    assert torch.equal(torch.stack([picture.pixels for picture in pictures]), want["crop_mixed"])


def test_squares_and_their_corners_equal_golden(want, picture):
    for index, name in enumerate(("land", "port")):
        square = resize_image(picture(name), Fit.SQUARE, size=56)
        at = square.placement
        right = at.offset_x + at.scale_x * at.source_width
        bottom = at.offset_y + at.scale_y * at.source_height
        corners = torch.tensor([at.offset_x, at.offset_y, right, bottom, at.source_width, at.source_height])
        assert torch.equal(square.pixels, want["square"][index])
        torch.testing.assert_close(corners, want["square_coords"][index])


@pytest.mark.parametrize(
    ("source", "height"),
    [((1920, 1080), 294), ((640, 480), 392), ((752, 480), 336), ((1242, 375), 154), ((480, 640), 518)],
)
def test_usual_shapes_become_whole_patches(source, height):
    assert resize_image(Image.new("RGB", source)).pixels.shape == (3, height, 518)


def test_placement_says_where_the_source_went():
    portrait = Image.new("RGB", (40, 90))
    assert resize_image(portrait, Fit.CROP, size=56).placement == Placement(40, 90, 1.4, 126 / 90, 0.0, -35.0)
    assert resize_image(portrait, Fit.PAD, size=56).placement == Placement(40, 90, 28 / 40, 56 / 90, 14.0, 0.0)
    wide = resize_image(Image.new("RGB", (64, 48)), size=56)
    tall = resize_image(portrait, size=56)
    assert match_sizes([wide, tall])[0].placement == Placement(64, 48, 56 / 64, 42 / 48, 0.0, 7.0)


def test_very_thin_pictures_keep_one_row_of_patches():
    assert resize_image(Image.new("RGB", (1000, 3)), size=56).pixels.shape == (3, 14, 56)


def test_size_must_be_whole_patches():
    with pytest.raises(InputError, match="multiple of 14, got 512; try 504"):
        resize_image(Image.new("RGB", (8, 8)), size=512)


def test_size_without_room_for_its_square_is_refused():
    with pytest.raises(InputError, match="Expected at most 50 million pixels in the square"):
        Preprocessor(fit=Fit.PAD, size=14_000)


def test_files_that_are_no_pictures_are_refused(tmp_path):
    note = tmp_path / "note.jpg"
    note.write_text("no picture")
    for path in (note, tmp_path / "absent.png"):
        with pytest.raises(InputError, match="Expected a picture at"):
            open_image(path)


def test_files_open_upright_and_opaque(tmp_path):
    path = tmp_path / "clear.png"
    Image.new("RGBA", (3, 2), (255, 0, 0, 0)).save(path)
    image = open_image(path)
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (3, 2), (255, 255, 255))


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_grey_of_sixteen_bits_keeps_its_upper_eight(format):
    values = np.linspace(0, 65535, 64 * 48).reshape(48, 64).astype(np.uint16)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, format)
    image = np.asarray(upright_rgb(Image.open(buffer)))
    assert (image == (values >> 8)[..., None]).all()


def test_colours_of_sixteen_bits_are_treated_like_grey(tmp_path):
    """A PNG of 16-bit colours, written by hand: one pixel of 0x1234, 0xABCD, 0xFF01."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\x12\x34\xab\xcd\xff\x01")
    path = tmp_path / "deep.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
    assert np.asarray(open_image(path)).tolist() == [[[0x12, 0xAB, 0xFF]]]


def test_picture_flipped_at_any_byte_is_one_sentence_or_a_picture(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.png", "a.webp", "a.tif"):
        path = tmp_path / name
        Image.new("RGB", (8, 6), (200, 100, 50)).save(path, exif=exif)
        whole = path.read_bytes()
        for place in range(0, len(whole), 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
            with warnings.catch_warnings(action="ignore"), suppress(InputError):
                assert open_image(path).mode == "RGB"


@made_with_this_pillow
@pytest.mark.parametrize(("fit", "name"), [(Fit.CROP, "land"), (Fit.PAD, "land"), (Fit.CROP, "port")])
def test_frames_in_the_shape_of_whole_patches_equal_golden(golden, fit, name):
    want = golden("preprocess")
    buffer = io.BytesIO()
    Image.fromarray(want[f"src_{name}"].numpy()).save(buffer, "png")
    frame = np.asarray(upright_rgb(Image.open(buffer)))
    assert torch.equal(Preprocessor(fit=fit, size=56)(frame).pixels, want[f"{fit}_{name}"])


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("shape", [(100, 200), (90, 160), (90, 40), (375, 1242), (20, 300), (3, 1000), (300, 20)])
def test_no_frame_is_stretched(fit, shape):
    resized = Preprocessor(fit=fit, size=126)(np.zeros((*shape, 3), np.uint8))
    assert resized.placement.scale_x / resized.placement.scale_y == pytest.approx(1, abs=0.04)
    if fit is not Fit.CROP:
        assert resized.placement.seen_share(resized.pixels.shape[1:]) == pytest.approx(1)


def test_frame_twice_as_wide_as_high_is_cut_and_stays_in_place():
    rows, columns = np.mgrid[:100, :200]
    frame = np.stack([columns, rows, 0 * rows], axis=-1).astype(np.uint8)
    resized = Preprocessor(size=126)(frame)
    at, (_, height, width) = resized.placement, resized.pixels.shape
    seen_columns = (np.arange(width) + 0.5 - at.offset_x) / at.scale_x - 0.5
    seen_rows = (np.arange(height) + 0.5 - at.offset_y) / at.scale_y - 0.5
    np.testing.assert_allclose(resized.pixels[0, 10], seen_columns, atol=1)
    np.testing.assert_allclose(resized.pixels[1, :, 10], seen_rows, atol=1)
    assert 0.85 < at.seen_share((height, width)) < 0.95


@pytest.mark.parametrize(("fit", "shape"), [(Fit.CROP, (40_000, 1)), (Fit.PAD, (70_000, 1)), (Fit.SQUARE, (1, 8000))])
def test_frame_that_would_fill_the_memory_is_one_sentence(fit, shape):
    with pytest.raises(InputError, match="Expected at most 50 million pixels in a picture of"):
        Preprocessor(fit=fit)(np.zeros((*shape, 3), np.uint8))


@made_with_this_pillow
@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
def test_frames_for_the_vggt_family_equal_golden(vggt_golden, fit):
    want = vggt_golden("preprocess")
    prepared = {}
    for name in ("landscape", "portrait", "rgba"):
        frame = upright_rgb(Image.fromarray(want[f"src/{name}"].numpy()))
        prepared[name] = resize_image(frame, fit, size=70)
        assert torch.equal(prepared[name].pixels, want[f"{fit}_70/{name}"])
    together = match_sizes([prepared["landscape"], prepared["portrait"]])
    assert torch.equal(torch.stack([one.pixels for one in together]), want[f"{fit}_70/mixed_batch"])
    published = resize_image(Image.fromarray(want["src/landscape"].numpy()), Fit.CROP, size=518).pixels
    assert torch.equal(want.thin("crop_518/landscape", published), want["crop_518/landscape"])


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("size", [(48, 64), (90, 40), (47, 63), (1, 1)])
def test_frames_of_one_size_give_pixels_of_one_size_in_one_place(fit: Fit, size: tuple[int, int]) -> None:
    prepare = Preprocessor(fit=fit, size=56)
    frames = np.random.default_rng(3).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    prepared = [prepare(frame) for frame in frames]
    assert len({(one.pixels.shape, one.placement) for one in prepared}) == 1
    assert not torch.equal(prepared[0].pixels, prepared[1].pixels)


def test_sides_are_whole_patches() -> None:
    pixels = Preprocessor(size=96, patch=16)(np.zeros((50, 70, 3), np.uint8)).pixels
    assert pixels.shape == (3, 64, 96)


@pytest.mark.parametrize(("size", "suggested"), [(512, 504), (5, 14), (0, 14)])
def test_size_must_be_whole_patches_before_there_is_a_frame(size: int, suggested: int) -> None:
    with pytest.raises(InputError, match=f"a multiple of 14, got {size}; try {suggested}"):
        Preprocessor(size=size)


TRAINED = ((98, 126), (84, 154), (126, 98), (154, 84), (70, 168))
NEAREST = [
    ((360, 640), (84, 154)),
    ((480, 640), (98, 126)),
    ((640, 480), (126, 98)),
    ((640, 360), (154, 84)),
    ((436, 1024), (70, 168)),
    ((1, 1), (98, 126)),
    ((20, 3000), (70, 168)),
]


@pytest.mark.parametrize(("shape", "expected"), NEAREST)
@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
def test_of_several_trained_sizes_the_one_of_the_frames_shape_is_taken(
    fit: Fit, shape: tuple[int, int], expected: tuple[int, int]
) -> None:
    resized = Preprocessor(fit=fit, size=126, sizes=TRAINED)(np.zeros((*shape, 3), np.uint8))
    assert resized.pixels.shape == (3, *expected)


@pytest.mark.parametrize(("shape", "size"), NEAREST[:5])
def test_usual_shapes_lose_nothing_where_their_size_was_trained(shape: tuple[int, int], size: tuple[int, int]) -> None:
    placement = Preprocessor(size=126, sizes=TRAINED)(np.zeros((*shape, 3), np.uint8)).placement
    assert placement.seen_share(size) == pytest.approx(1)
    assert placement.scale_x / placement.scale_y == pytest.approx(1, abs=0.04)


def test_frame_of_another_shape_is_cut_or_filled_up_to_the_nearest_trained_one_and_stays_in_place() -> None:
    rows, columns = np.mgrid[:120, :120]
    frame = np.stack([columns, rows, 0 * rows], axis=-1).astype(np.uint8)
    for fit in (Fit.CROP, Fit.PAD):
        resized = Preprocessor(fit=fit, size=126, sizes=TRAINED)(frame)
        at, (_, height, width) = resized.placement, resized.pixels.shape
        seen_columns = (np.arange(width) + 0.5 - at.offset_x) / at.scale_x - 0.5
        seen_rows = (np.arange(height) + 0.5 - at.offset_y) / at.scale_y - 0.5
        inside = (seen_columns > 2) & (seen_columns < 117)
        np.testing.assert_allclose(resized.pixels[0, 40][inside], seen_columns[inside], atol=1)
        inside = (seen_rows > 2) & (seen_rows < 117)
        np.testing.assert_allclose(resized.pixels[1, :, 60][inside], seen_rows[inside], atol=1)
        assert (at.seen_share((height, width)) == pytest.approx(1)) == (fit is Fit.PAD)


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("shape", [(48, 64), (96, 128), (360, 640)])
def test_four_by_three_is_the_same_to_the_bit_with_one_trained_size_and_squares_always(
    fit: Fit, shape: tuple[int, int]
) -> None:
    frame = np.random.default_rng(5).integers(0, 256, (*shape, 3), dtype=np.uint8)
    plain, chosen = Preprocessor(fit=fit, size=126)(frame), Preprocessor(fit=fit, size=126, sizes=TRAINED)(frame)
    is_alike = fit is Fit.SQUARE or (fit is Fit.CROP and shape != (360, 640))
    assert (chosen.placement == plain.placement) == is_alike
    if is_alike:
        assert torch.equal(chosen.pixels, plain.pixels)


def test_trained_sizes_are_whole_patches() -> None:
    with pytest.raises(InputError, match="a multiple of 14, got 100"):
        Preprocessor(size=126, sizes=((98, 100),))
