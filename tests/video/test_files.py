"""Video files: exact times, any shape and pixels, and damage that is told frame by frame."""

import gc
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from longtake.errors import InputError
from longtake.video.files import FileClock, VideoFile
from longtake.video.frame import VideoFrame
from longtake.video.sampling import FrameSampling

UNEVEN_S = [0.0, 0.033, 0.1, 0.104, 0.5, 0.51234, 2.0, 2.04, 2.05, 7.5]
Film = Callable[..., Path]
Drawn = Callable[..., np.ndarray]


def read(path: Path, *, threads: int = 0) -> list[VideoFrame]:
    return list(VideoFile(path, threads=threads).frames())


def times_of(frames: list[VideoFrame]) -> list[float]:
    return [frame.timestamp_s for frame in frames]


def noise(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """Pictures that need many bytes, so that damage hits one."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.mov"])
def test_uneven_times_come_back_from_every_container(tmp_path: Path, film: Film, drawn: Drawn, name: str) -> None:
    pictures = [drawn(number) for number in range(len(UNEVEN_S))]
    frames = read(film(tmp_path / name, pictures, times_s=UNEVEN_S))
    ticks_per_s = 1000 if name.endswith("mkv") else 90_000
    np.testing.assert_allclose(times_of(frames), UNEVEN_S, atol=0.51 / ticks_per_s)
    assert [frame.index for frame in frames] == list(range(len(UNEVEN_S)))
    for frame, expected in zip(frames, pictures, strict=True):
        np.testing.assert_array_equal(frame.image, expected)


def test_time_counts_from_the_first_frame(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    late = [time_s + 1000 for time_s in UNEVEN_S]
    pictures = [drawn(number) for number in range(len(UNEVEN_S))]
    path = film(tmp_path / "late.ts", pictures, times_s=late, codec="libx264", pixels="yuv444p", options={"qp": "0"})
    with av.open(str(path)) as container:
        assert next(container.decode(video=0)).time > 900
    np.testing.assert_allclose(times_of(read(path)), UNEVEN_S, atol=1e-4)


def test_frames_decoded_out_of_order_come_in_order(
    tmp_path: Path, film: Film, drawn: Drawn, number_in: Callable[[np.ndarray], int]
) -> None:
    path = film(
        tmp_path / "b.mp4",
        [drawn(number) for number in range(20)],
        codec="libx264",
        pixels="yuv444p",
        options={"crf": "4", "g": "10", "x264-params": "bframes=3:b-adapt=0:scenecut=0"},
    )
    with av.open(str(path)) as container:
        pts = [packet.pts for packet in container.demux(video=0) if packet.size]
    assert pts != sorted(pts)
    frames = read(path)
    np.testing.assert_allclose(times_of(frames), np.arange(20) / 30, atol=1e-5)
    assert [number_in(frame.image) for frame in frames] == list(range(20))


def test_frames_without_times_are_spaced_by_the_average_rate(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(
        tmp_path / "bare.h264",
        [drawn(number) for number in range(6)],
        file_format="h264",
        time_base=Fraction(1, 30),
    )
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        fps = float(stream.average_rate)
        assert next(container.decode(stream)).pts is None
    np.testing.assert_allclose(times_of(read(path)), np.arange(6) / fps, atol=1e-9)


@pytest.mark.parametrize(
    ("pts", "times_s"),
    [
        ([0, 90, 180], [0.0, 0.09, 0.18]),
        ([-90, 0, 90], [0.0, 0.09, 0.18]),
        ([5000, 5100], [0.0, 0.1]),
        ([None, None, None], [0.0, 0.04, 0.08]),
        ([None, 700, 740], [0.0, 0.04, 0.08]),
        ([0, None, 200], [0.0, 0.04, 0.2]),
        ([0, 100, 100, 200], [0.0, 0.1, 0.101, 0.2]),
        ([0, 100, 60, 200], [0.0, 0.1, 0.101, 0.2]),
        ([0, 500, 499, 499, 499, 510], [0.0, 0.5, 0.501, 0.502, 0.503, 0.51]),
        ([0, 5000, 0, 40, 80], [0.0, 5.0, 5.04, 5.08, 5.12]),
        ([0, 5000, 0, 5000, 100], [0.0, 5.0, 5.04, 10.04, 10.08]),
    ],
)
def test_clock_is_repaired_where_times_are_missing_or_go_back(pts: list[int | None], times_s: list[float]) -> None:
    clock = FileClock(Fraction(1, 1000), Fraction(25))
    np.testing.assert_allclose([clock.read(one) for one in pts], times_s, atol=1e-9)


def test_joined_recordings_go_on_without_going_back(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    for name, first in (("a.ts", 0), ("b.ts", 10)):
        pictures = [drawn(number) for number in range(first, first + 10)]
        film(tmp_path / name, pictures, codec="libx264", pixels="yuv420p", options={"g": "5"})
    joined = tmp_path / "joined.ts"
    joined.write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    frames = read(joined)
    assert len(frames) == 20
    assert all(later > earlier for earlier, later in zip(times_of(frames), times_of(frames)[1:], strict=False))


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_film_of_a_turned_phone_is_upright(
    tmp_path: Path, film: Film, drawn: Drawn, degrees: int, mirrored: bool
) -> None:
    path = film(tmp_path / "turned.mp4", [drawn(1), drawn(2)], turn=(degrees, mirrored))
    expected = np.rot90(drawn(2), degrees // 90)  # counter-clockwise, as PyAV counts
    expected = expected[:, ::-1] if mirrored else expected
    frames = read(path)
    assert len(frames) == 2
    np.testing.assert_array_equal(frames[1].image, expected)


def test_decoded_frames_do_not_wait_for_garbage_to_be_collected(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    """Of those that nobody looks at any more, only keyframes do."""
    path = film(tmp_path / "long.mp4", [drawn(number % 8) for number in range(40)], turn=(90, False))
    gc.collect()
    gc.disable()
    try:
        before = _num_decoded()
        assert len(read(path)) == 40
        assert _num_decoded() - before <= 3
    finally:
        gc.enable()


def _num_decoded() -> int:
    return sum(type(one) is av.VideoFrame for one in gc.get_objects())


def test_rotation_that_is_only_in_the_header_of_an_mp4_is_honoured(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    """As a phone writes it: the matrix of the track, changed in the finished file."""
    path = film(tmp_path / "phone.mp4", [drawn(1)])
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 4 + 20 + 16
    assert struct.unpack(">9i", data[matrix : matrix + 36]) == (65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30)
    data[matrix : matrix + 36] = struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 48 << 16, 0, 1 << 30)
    path.write_bytes(data)
    np.testing.assert_array_equal(read(path)[0].image, np.rot90(drawn(1), -1))


@pytest.mark.parametrize("size", [(47, 63), (1, 1), (2, 5), (33, 18), (64, 3)])
def test_odd_sizes_keep_every_pixel(tmp_path: Path, film: Film, drawn: Drawn, size: tuple[int, int]) -> None:
    path = film(tmp_path / "odd.mkv", [drawn(1, *size)], codec="ffv1", pixels="bgr0", options={"level": "3"})
    np.testing.assert_array_equal(read(path)[0].image, drawn(1, *size))


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [
        ("ffv1", "yuv420p"),
        ("ffv1", "yuv422p10le"),
        ("ffv1", "yuv420p10le"),
        ("ffv1", "yuv444p16le"),
        ("libx264", "yuv420p10le"),
        ("libvpx-vp9", "yuv420p"),
    ],
)
@pytest.mark.parametrize("size", [(48, 64), (46, 62)])
def test_pixels_of_many_kinds_become_nearly_the_same_rgb(
    tmp_path: Path, film: Film, drawn: Drawn, codec: str, pixels: str, size: tuple[int, int]
) -> None:
    options = {"libx264": {"crf": "4"}, "libvpx-vp9": {"crf": "4", "b": "0"}}.get(codec, {"level": "3"})
    path = film(tmp_path / "film.mkv", [drawn(4, *size)] * 3, codec=codec, pixels=pixels, options=options)
    image = read(path)[1].image
    difference = image.astype(float) - drawn(4, *size)
    assert np.abs(difference).max() <= 6
    assert np.abs(difference.mean(axis=(0, 1))).max() <= 1.6  # no tint


@pytest.mark.parametrize("pixels", ["gray", "gray10le", "gray12le", "gray16le"])
def test_grey_films_are_grey(tmp_path: Path, film: Film, drawn: Drawn, pixels: str) -> None:
    grey = drawn(1)[..., :1].repeat(3, axis=-1)
    image = read(film(tmp_path / "grey.mkv", [grey], codec="ffv1", pixels=pixels, options={"level": "3"}))[0].image
    assert np.abs(image.astype(int) - grey).max() <= 1
    assert (image == image[..., :1]).all()


@pytest.mark.parametrize(
    ("name", "codec", "pixels"),
    [("a.mov", "png", "rgba"), ("a.mkv", "ffv1", "bgra"), ("a.mov", "qtrle", "argb")],
)
def test_transparent_films_lie_on_white(
    tmp_path: Path, film: Film, drawn: Drawn, name: str, codec: str, pixels: str
) -> None:
    opacity = np.zeros((48, 64), np.uint8)
    opacity[:, 32:] = 255
    picture = np.dstack([drawn(5), opacity])
    image = read(film(tmp_path / name, [picture], codec=codec, pixels=pixels, options={"threads": "1"}))[0].image
    assert (image[:, :32] == 255).all()
    np.testing.assert_array_equal(image[:, 32:], drawn(5)[:, 32:])


def test_animated_gif_is_a_film(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    pictures = [drawn(number) for number in (0, 12, 24)]
    path = film(tmp_path / "a.gif", pictures, codec="gif", pixels="rgb8", options={"gifflags": "0"})
    frames = read(path)
    assert [round(float(frame.image[..., 2].mean()) / 96) for frame in frames] == [0, 1, 2]


@pytest.mark.parametrize("colours", [1, 5, 9])
def test_colours_are_converted_as_the_film_says(tmp_path: Path, drawn: Drawn, colours: int) -> None:
    path = tmp_path / "tagged.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv444p"
        stream.codec_context.colorspace, stream.codec_context.color_range = colours, 1
        frame = av.VideoFrame.from_ndarray(drawn(20), format="rgb24")
        file.mux(stream.encode(frame.reformat(format="yuv444p", dst_colorspace=colours, dst_color_range=1)))
        file.mux(stream.encode(None))
    assert np.abs(read(path)[0].image.astype(int) - drawn(20)).max() <= 4


@pytest.mark.extra
def test_part_far_in_is_the_same_with_and_without_a_jump(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    options = {"g": "25", "x264-params": "bframes=4:b-pyramid=normal:b-adapt=0:scenecut=0:open-gop=1"}
    pictures = [drawn(number % 32) for number in range(400)]
    times_s = [number / 30 + 0.004 * (number % 3) for number in range(400)]
    for name in ("long.mp4", "long.mkv"):
        path = film(tmp_path / name, pictures, times_s=times_s, codec="libx264", pixels="yuv444p", options=options)
        everything = read(path)
        for start_s in (*times_s[147:151], 12.9):  # around a keyframe, some frames of which come before it
            part = list(VideoFile(path, FrameSampling(start_s=start_s)).frames())
            expected = [frame for frame in everything if frame.timestamp_s >= start_s - 0.001]
            assert times_of(part) == times_of(expected)
            assert all(np.array_equal(a.image, b.image) for a, b in zip(part, expected, strict=True))


def test_jump_does_not_decode_what_lies_before(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    options = {"g": "30", "qp": "0"}
    path = film(tmp_path / "long.mp4", [drawn(number % 32) for number in range(900)], options=options)
    whole = sum(1 for _ in VideoFile(path).all_frames())
    part = sum(1 for _ in VideoFile(path, FrameSampling(start_s=28.0)).all_frames())
    assert whole == 900
    assert part <= 1 + 30 * (2 + 1 + 1)


def test_start_after_the_end_is_refused(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "short.mp4", [drawn(number) for number in range(5)])
    for start_s in (1.0, 100.0):
        with pytest.raises(
            InputError, match=rf"Expected frames from {start_s:g} s on in .*short.mp4, but it ends before"
        ):
            list(VideoFile(path, FrameSampling(start_s=start_s)).frames())


@pytest.mark.parametrize("sampling", [FrameSampling(), FrameSampling(fps=10.0), FrameSampling(start_s=0.5, stride=3)])
@pytest.mark.parametrize("skip", [0, 1, 5, 11, 100])
def test_skipping_gives_what_reading_on_would(
    tmp_path: Path, film: Film, drawn: Drawn, sampling: FrameSampling, skip: int
) -> None:
    path = film(tmp_path / "film.mp4", [drawn(number) for number in range(30)])
    source = VideoFile(path, sampling)
    expected = list(source.frames())[skip:]
    resumed = list(source.frames(skip))
    assert [(frame.index, frame.timestamp_s) for frame in resumed] == [
        (frame.index, frame.timestamp_s) for frame in expected
    ]
    assert all(np.array_equal(a.image, b.image) for a, b in zip(resumed, expected, strict=True))


def test_number_of_frames_is_known_beforehand(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "film.mp4", [drawn(number) for number in range(30)])
    assert VideoFile(path).num_frames == 30
    assert VideoFile(path, FrameSampling(fps=10.0)).num_frames == 10
    assert not VideoFile(path).is_live
    assert VideoFile(path).name == str(path)


def test_closing_the_frames_closes_the_file(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "film.mp4", [drawn(number) for number in range(30)])
    frames = VideoFile(path).frames()
    next(frames)
    open_files = Path("/proc/self/fd")
    is_linux = open_files.exists()
    assert not is_linux or any(link.resolve() == path for link in open_files.iterdir())
    frames.close()
    assert not is_linux or not any(link.resolve() == path for link in open_files.iterdir())


def faststart(film: Film, path: Path) -> bytes:
    film(
        path,
        [noise(number) for number in range(40)],
        codec="libx264",
        pixels="yuv420p",
        options={"g": "8", "x264-params": "bframes=2:b-adapt=0:scenecut=0"},
        container={"movflags": "faststart"},
    )
    return path.read_bytes()


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_film_cut_off_in_the_middle_is_read_up_to_there(tmp_path: Path, film: Film, threads: int) -> None:
    path = tmp_path / "cut.mp4"
    data = faststart(film, path)
    whole = read(path)
    assert len(whole) == 40
    assert not any(frame.problem for frame in whole)
    path.write_bytes(data[: len(data) // 2])
    frames = read(path, threads=threads)
    pictures = [frame for frame in frames if frame.image is not None]
    assert 12 <= len(pictures) <= 24
    for frame in pictures:
        assert frame.timestamp_s == whole[frame.index].timestamp_s
        np.testing.assert_array_equal(frame.image, whole[frame.index].image)
    assert frames[-1].image is None
    assert "cut.mp4 is damaged or cut off" in frames[-1].problem
    assert "of its frames are missing" in frames[-1].problem


def test_film_cut_off_before_its_index_says_so(tmp_path: Path, film: Film) -> None:
    path = film(tmp_path / "cut.mp4", [noise(number) for number in range(10)])
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"a video in .*cut.mp4, but it cannot be opened \(its index is missing\)"):
        VideoFile(path)


def test_film_cut_off_before_its_first_frame_is_refused(tmp_path: Path, film: Film) -> None:
    path = tmp_path / "cut.mp4"
    data = faststart(film, path)
    path.write_bytes(data[: data.index(b"mdat") + 100])
    with pytest.raises(InputError, match=r"Not one frame of .*cut.mp4 can be read: "):
        read(path)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_damage_in_the_middle_is_told_and_the_rest_read(tmp_path: Path, film: Film, threads: int) -> None:
    path = tmp_path / "damaged.mp4"
    data = bytearray(faststart(film, path))
    whole = read(path)
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(data)
    frames = read(path, threads=threads)
    assert times_of(frames) == times_of(whole)
    problems = [frame for frame in frames if frame.problem]
    assert 1 <= len(problems) <= 6
    assert all(10 < frame.index < 30 for frame in problems)
    assert "s of " in problems[0].problem
    assert "damaged.mp4 is damaged and cannot be decoded" in problems[0].problem
    for place in (*range(10), *range(30, 40)):
        np.testing.assert_array_equal(frames[place].image, whole[place].image)


def test_damage_anywhere_costs_no_frame_its_place(tmp_path: Path, film: Film) -> None:
    path = tmp_path / "damaged.mp4"
    data = faststart(film, path)
    times_s = times_of(read(path))
    first = data.index(b"mdat") + 8
    for place in range(first, len(data) - 500, len(data) // 40):
        path.write_bytes(data[:place] + bytes(500) + data[place + 500 :])
        assert times_of(read(path, threads=1)) == times_s


def test_damage_is_told_alike_by_any_number_of_threads(tmp_path: Path, film: Film) -> None:
    path = tmp_path / "damaged.mp4"
    data = bytearray(faststart(film, path))
    for middle in range(len(data) // 4, len(data) * 3 // 4, 7000):
        data[middle : middle + 50] = bytes(50)
    path.write_bytes(data)
    told = [[(f.timestamp_s, f.problem) for f in read(path, threads=threads)] for threads in (1, 2, 5)]
    assert any(problem for _, problem in told[0])
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("skip", [3, 15, 20, 25])
def test_skipping_counts_damaged_frames(tmp_path: Path, film: Film, skip: int) -> None:
    path = tmp_path / "damaged.mp4"
    data = bytearray(faststart(film, path))
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    source = VideoFile(path)
    expected, resumed = list(source.frames())[skip:], list(source.frames(skip))
    assert [(f.index, f.timestamp_s, f.problem) for f in resumed] == [
        (f.index, f.timestamp_s, f.problem) for f in expected
    ]


def test_frames_that_a_container_lost_are_told_at_its_end(tmp_path: Path, film: Film) -> None:
    path = film(
        tmp_path / "lost.avi",
        [noise(number) for number in range(30)],
        codec="mjpeg",
        pixels="yuvj420p",
        time_base=Fraction(1, 30),
        options={"threads": "1"},
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 6000] = bytes(6000)
    path.write_bytes(data)
    frames = read(path)
    assert frames[-1].problem is not None
    assert "lost.avi is damaged or cut off" in frames[-1].problem
    assert sum(frame.image is not None for frame in frames) < 30


def test_film_that_changes_its_size_says_where(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    for name, size in (("a.ts", (48, 64)), ("b.ts", (32, 48))):
        film(tmp_path / name, [drawn(3, *size)] * 5, codec="libx264", pixels="yuv420p", options={"g": "1"})
    joined = tmp_path / "joined.ts"
    joined.write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    frames = read(joined)
    assert [frame.image is not None for frame in frames] == [True] * 5 + [False] * 5
    assert f"The frame at {frames[5].timestamp_s:.3f} s in" in frames[5].problem
    assert "is of another size (48x32; the first is 64x48)" in frames[5].problem


def test_film_of_an_unknown_codec_is_refused(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "new.mp4", [drawn(1)], codec="libx264", pixels="yuv420p", options={"g": "1"})
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzz9"))
    with pytest.raises(InputError, match=r"Expected a video in .*new.mp4, but no decoder knows its codec"):
        read(path)


def test_cover_of_an_album_is_no_film(tmp_path: Path) -> None:
    path = tmp_path / "album.mp4"
    with av.open(str(path), "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=44100)
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.rate = 44100
        container.mux(cover.encode(av.VideoFrame(64, 48, "yuvj420p")))
        container.mux(cover.encode(None))
        container.mux(sound.encode(silence))
        container.mux(sound.encode(None))
    with av.open(str(path)) as container:
        assert len(container.streams.video) == 1
    with pytest.raises(InputError, match="it has no video track"):
        VideoFile(path)


def write_sound(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("note.mp4", lambda path: path.write_text("no film\n" * 50), "cannot be opened .* check that it plays"),
        ("note.txt", lambda path: path.write_text("no film\n" * 200), "it holds text"),
        ("empty.mp4", lambda path: path.write_bytes(b""), "cannot be opened"),
        ("absent.mp4", lambda path: None, r"cannot be opened \(No such file or directory\)"),
        ("folder.mp4", lambda path: path.mkdir(), r"cannot be opened \(Is a directory\)"),
        ("sound.mp4", write_sound, "it has no video track"),
    ],
)
def test_what_is_no_film_is_one_sentence(
    tmp_path: Path, name: str, write: Callable[[Path], object], sentence: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(InputError, match=rf"Expected a video in .*{name}, but .*{sentence}") as caught:
        VideoFile(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_name_that_looks_like_a_protocol_is_a_file(
    tmp_path: Path, film: Film, drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(tmp_path / "plain.mp4", [drawn(1)])
    shutil.move(tmp_path / "plain.mp4", tmp_path / "concat:a.mp4")
    monkeypatch.chdir(tmp_path)
    assert len(read(Path("concat:a.mp4"))) == 1


def test_any_flipped_byte_is_one_sentence_or_frames_in_order(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = tmp_path / "flipped.mp4"
    film(path, [drawn(number, 16, 16) for number in range(4)], codec="libx264", pixels="yuv420p", options={"g": "2"})
    whole = path.read_bytes()
    for place in range(0, len(whole), 23):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with suppress(InputError):
            times_s = times_of(read(path, threads=1))
            assert times_s == sorted(set(times_s))


@pytest.mark.parametrize("name", ["a.mkv", "a.webm"])
@pytest.mark.parametrize("kept", [0.35, 0.6, 0.9, 0.98])
def test_matroska_that_is_cut_off_says_so(tmp_path: Path, film: Film, name: str, kept: float) -> None:
    codec = {"codec": "libvpx-vp9", "pixels": "yuv420p", "options": {"cpu-used": "8"}} if name.endswith("webm") else {}
    path = film(tmp_path / name, [noise(number) for number in range(12)], **codec)
    assert all(frame.problem is None for frame in read(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    frames = read(path)
    assert sum(frame.image is not None for frame in frames) in range(1, 13)
    assert "cut off" in frames[-1].problem or "damaged" in frames[-1].problem
    assert all(later > earlier for earlier, later in pairwise(times_of(frames)))


def test_matroska_of_unknown_length_is_complete(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "a.mkv", [drawn(number) for number in range(6)], container={"live": "1"})
    assert [frame.problem for frame in read(path)] == [None] * 6


@pytest.mark.parametrize(("aspect", "size"), [((4, 3), (48, 85)), ((2, 3), (72, 64)), ((1, 1), (48, 64))])
@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts"])
def test_pixels_that_are_not_square_are_drawn_out(
    tmp_path: Path, film: Film, drawn: Drawn, aspect: tuple[int, int], size: tuple[int, int], name: str
) -> None:
    codec = {"codec": "libx264", "pixels": "yuv420p"}
    path = film(tmp_path / name, [drawn(number) for number in range(3)], pixel_aspect=Fraction(*aspect), **codec)
    for number, frame in enumerate(read(path)):
        assert frame.image.shape == (*size, 3)
        np.testing.assert_allclose(frame.image[8:-8, 8:-8], drawn(number, *size)[8:-8, 8:-8], atol=8)


def test_shape_of_pixels_that_is_damage_is_passed_over(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "a.mp4", [drawn(0)], pixel_aspect=Fraction(65535, 1))
    assert read(path)[0].image.shape == (48, 64, 3)


def test_interlaced_video_is_noticed(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    codec = {"codec": "libx264", "pixels": "yuv420p"}
    pictures = [drawn(number) for number in range(3)]
    for name, options in (("woven.mp4", {"flags": "+ildct+ilme"}), ("whole.mp4", {})):
        source = VideoFile(film(tmp_path / name, pictures, options=options, **codec))
        assert len(list(source.frames())) == 3
        assert (source.note is not None and "woven.mp4 is interlaced" in source.note) == (name == "woven.mp4")


def test_video_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    path = film(tmp_path / "a.mkv", [drawn(0, 256, 320)], codec="ffv1", pixels="gray", options={})
    data, width, height = path.read_bytes(), b"\xb0\x82\x01\x40", b"\xba\x82\x01\x00"
    assert width in data
    assert height in data
    path.write_bytes(data.replace(width, b"\xb0\x82\x3e\x80").replace(height, b"\xba\x82\x3e\x80"))
    with pytest.raises(InputError, match=r"Expected at most 50 million pixels in .*a.mkv, but it has 16000x16000"):
        VideoFile(path)
