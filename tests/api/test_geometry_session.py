"""The public geometry session says what `map` writes, to the bit, whatever a picture comes as."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from selected import rest_by_hand, rest_in_extra
from walked import newest

import longtake
from longtake import DialogueSession, Geometry, GeometrySession
from longtake.errors import BudgetError, CheckpointError, InputError, MemoryFullError, SavedSessionError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.language.load import LanguageModel
from longtake.memory.saved import Pieces, SavedTensors, write_tensors
from longtake.takes.tum import as_written
from longtake.video.frame import VideoFrame
from longtake.video.resize import Preprocessor
from longtake.weights.presets import TINY

WORDS = {"memory": "20MB", "windows": "10/4", "keyframes": "every:3", "policy": "context"}


def run_through(session: GeometrySession, frames: list[VideoFrame]) -> Geometry:
    return newest([*(session.step(frame) for frame in frames), session.finish()])


def equal(one: Geometry, other: Geometry) -> bool:
    return (
        one.frame_index == other.frame_index
        and one.timestamp_s == other.timestamp_s
        and torch.equal(one.world_from_camera, other.world_from_camera)
        and torch.equal(one.depth, other.depth)
    )


@pytest.mark.parametrize(
    ("size", "fit"),
    rest_in_extra([("126x98", "crop"), ("126x98", "square"), ("200x300", "pad"), ("200x300", "crop")], keep=2),
)
def test_session_and_map_agree_to_the_bit(model: GeometryModel, tmp_path: Path, size: str, fit: str) -> None:
    source = f"world:9?frames=16&size={size}"
    take = longtake.map(source, tmp_path, model=model, format="depth-npz", fit=fit, size=84, **WORDS)
    with GeometrySession.from_pretrained(model, fit=fit, size=84, **WORDS) as session:
        known = run_through(session, list(longtake.open_video(source)))
    assert list(known.timestamp_s) == take.trajectory.timestamp_s.tolist()
    assert torch.equal(as_written(known.world_from_camera.double()), take.trajectory.world_from_camera)
    for position in range(len(take)):
        depth = take.depth(position)
        shown = depth > 0  # a take has no depth where the picture was filled up
        assert np.array_equal(known.depth[position].numpy()[shown], depth[shown])
        assert shown.mean() > 0.6


@pytest.mark.parametrize(("size", "seen"), [("64x36", "70x42"), ("48x64", "42x70"), ("56x48", "42x42")])
def test_a_video_is_seen_in_the_trained_size_nearest_to_its_shape_by_session_map_and_after_a_break(
    tmp_path: Path, size: str, seen: str
) -> None:
    model = random_model(replace(TINY, sizes=((42, 70), (70, 42), (42, 42))), torch.device("cpu"))
    source = f"world:9?frames=12&size={size}"
    take = longtake.map(source, tmp_path / "map", model=model, format="depth-npz")
    assert f"{take.header.width}x{take.header.height}" == seen
    with GeometrySession.from_pretrained(model) as session:
        for frame in list(longtake.open_video(source))[:10]:
            session.step(frame)
        assert session.info.size == seen
        session.save(tmp_path / "session")
    with GeometrySession.resume(tmp_path / "session", model) as resumed:
        for frame in list(longtake.open_video(source))[10:]:
            depth = resumed.step(frame).depth
        assert resumed.info.size == seen
    np.testing.assert_array_equal(depth[-1], take.depth(11))
    other = longtake.map(source, tmp_path / "other", model=model, size=84)
    assert other.header.width == 84


def test_pictures_of_every_kind_give_the_same_bits(model: GeometryModel, frames: list[VideoFrame]) -> None:
    images = [np.asarray(frame.image) for frame in frames[:10]]
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    kinds = (
        images,
        [Image.fromarray(image) for image in images],
        tensors,
        [tensor.float() / 255 for tensor in tensors],
    )
    want = run_through(GeometrySession.from_pretrained(model), frames[:10])
    for pictures in kinds:
        session = GeometrySession.from_pretrained(model)
        steps = [session.step(image, frame.timestamp_s) for image, frame in zip(pictures, frames, strict=False)]
        assert equal(newest([*steps, session.finish()]), want)


def test_without_a_time_the_index_stands_in(model: GeometryModel, frames: list[VideoFrame]) -> None:
    session = GeometrySession.from_pretrained(model)
    steps = [session.step(np.asarray(frame.image)) for frame in frames[:9]]
    assert newest([*steps, session.finish()]).timestamp_s == tuple(float(index) for index in range(9))


REFUSED: tuple[tuple[object, str], ...] = (
    (np.zeros((98, 112, 3), np.uint8), "Expected pictures of 126x98 pixels as the first one, but got 112x98"),
    (np.full((98, 126, 3), np.nan), "some are NaN"),
    (np.full((98, 126, 3), 7.0), "run from 7 to 7"),
    (torch.zeros(0, 98, 126), "but got 0 x 98 x 126"),
    (VideoFrame(9, 0.9, None, "It is damaged."), "has no picture: It is damaged"),
)


def test_a_refused_picture_leaves_the_session_as_it_was(model: GeometryModel, frames: list[VideoFrame]) -> None:
    want = run_through(GeometrySession.from_pretrained(model, windows="10/2"), frames)
    session = GeometrySession.from_pretrained(model, windows="10/2")
    steps = [session.step(frame) for frame in frames[:15]]
    for bad, sentence in REFUSED:
        with pytest.raises(InputError, match=sentence):
            session.step(bad, 1.45)
        assert session.info.num_frames == 15
    steps += [session.step(frame) for frame in frames[15:]]
    assert equal(newest([*steps, session.finish()]), want)


def test_a_first_frame_without_a_time_is_refused_and_the_session_goes_on(
    model: GeometryModel, frames: list[VideoFrame]
) -> None:
    session = GeometrySession.from_pretrained(model)
    with pytest.raises(InputError, match="Expected a time in seconds, but got nan"):
        session.step(VideoFrame(0, float("nan"), frames[0].image))
    session.step(frames[0])
    assert session.info.num_frames == 1


def test_a_first_picture_that_is_refused_leaves_the_size_open(model: GeometryModel, frames: list[VideoFrame]) -> None:
    session = GeometrySession.from_pretrained(model, memory="1MB")
    with pytest.raises(longtake.LongtakeError, match="the smallest that works is"):
        session.step(frames[0])
    assert (session.info.num_frames, session.info.size, session.num_bytes) == (0, None, 0)


@pytest.mark.parametrize("windows", ["10/2", "none"])
def test_fork_save_and_resume_go_on_to_the_bit(
    model: GeometryModel, frames: list[VideoFrame], tmp_path: Path, windows: str
) -> None:
    path = tmp_path / "session.safetensors"
    session = GeometrySession.from_pretrained(model, windows=windows)
    for frame in frames[:15]:
        session.step(frame)
    session.save(path)
    with session.fork() as branch:
        forked = run_through(branch, frames[15:])
    resumed = GeometrySession.resume(path, "micro-map", device="cpu")
    assert (resumed.info, resumed.num_bytes) == (session.info, session.num_bytes)
    gone_on = run_through(resumed, frames[15:])
    straight = run_through(session, frames[15:])
    assert torch.allclose(forked.world_from_camera, straight.world_from_camera, atol=1e-4)
    assert equal(gone_on, straight)
    assert session.info.num_frames == len(frames)


def saved_with_fit(model: GeometryModel, frames: list[VideoFrame], path: Path, fit: str) -> GeometrySession:
    session = GeometrySession.from_pretrained(model, fit=fit, windows="none")
    for frame in frames[:10]:
        session.step(frame)
    session.save(path)
    return session


@pytest.mark.parametrize("fit", ["pad", "square"])
def test_a_resumed_session_places_pictures_as_before(
    model: GeometryModel, frames: list[VideoFrame], tmp_path: Path, fit: str
) -> None:
    path = tmp_path / "session.safetensors"
    session = saved_with_fit(model, frames, path, fit)
    assert equal(run_through(GeometrySession.resume(path, model), frames[10:14]), run_through(session, frames[10:14]))
    with pytest.raises(SettingError, match=f"saved with fit '{fit}', but got 'crop'; leave it out"):
        GeometrySession.resume(path, model, fit="crop")


def test_a_file_that_does_not_say_its_fit_is_resumed_with_the_one_given(
    model: GeometryModel, frames: list[VideoFrame], tmp_path: Path
) -> None:
    path, older = tmp_path / "session.safetensors", tmp_path / "older.safetensors"
    session = saved_with_fit(model, frames, path, "square")
    record = {name: value for name, value in SavedTensors(path).record.items() if name != "fit"}
    write_tensors(older, {name: Pieces.of(tensor) for name, tensor in load_file(path).items()}, record)
    resumed = GeometrySession.resume(older, model, fit="square")
    with pytest.raises(InputError, match="Expected a frame of 3 x 126 x 126"):
        GeometrySession.resume(older, model).step(frames[10])
    assert equal(run_through(resumed, frames[10:14]), run_through(session, frames[10:14]))
    with pytest.raises(SettingError, match="Expected fit as crop, pad, square, but got 'stretch'"):
        GeometrySession.resume(older, model, fit="stretch")


@pytest.mark.parametrize("windows", ["10/2", "none"])
@pytest.mark.parametrize("num_frames", [2, 14])
def test_a_resumed_session_refuses_what_it_refused_before(
    model: GeometryModel, frames: list[VideoFrame], tmp_path: Path, windows: str, num_frames: int
) -> None:
    path, image = tmp_path / "session.safetensors", np.asarray(frames[num_frames].image)
    session = GeometrySession.from_pretrained(model, windows=windows)
    for frame in frames[:num_frames]:
        session.step(frame)
    for attempt in range(2):  # a session that was resumed is saved with it too
        session.save(path)
        session = GeometrySession.resume(path, model)
        with pytest.raises(InputError, match=rf"Expected a picture after {frames[num_frames - 1].timestamp_s:g} s"):
            session.step(image, -5.0)
        with pytest.raises(InputError, match="Expected pictures of 126x98 pixels as the first one, but got 252x196"):
            session.step(image.repeat(2, axis=0).repeat(2, axis=1), 9.0 + attempt)
    assert session.step(frames[num_frames]).timestamp_s[-1:] in ((), (frames[num_frames].timestamp_s,))


def test_a_file_of_an_earlier_version_is_resumed_without_a_time_and_a_size(
    model: GeometryModel, frames: list[VideoFrame], tmp_path: Path
) -> None:
    path, older = tmp_path / "session.safetensors", tmp_path / "older.safetensors"
    saved_with_fit(model, frames, path, "crop")
    record = {name: value for name, value in SavedTensors(path).record.items() if name not in ("source_size", "last_s")}
    write_tensors(older, {name: Pieces.of(tensor) for name, tensor in load_file(path).items()}, record)
    straight = run_through(GeometrySession.resume(path, model), frames[10:14])
    assert equal(run_through(GeometrySession.resume(older, model), frames[10:14]), straight)


@pytest.mark.extra
@pytest.mark.parametrize("words", [{}, {"windows": "none", "policy": "managed"}])
def test_a_session_and_its_fork_go_on_side_by_side(model: GeometryModel, words: dict[str, str]) -> None:
    frames = list(longtake.open_video("world:9?frames=40&size=126x98"))
    session, still, alone = (GeometrySession.from_pretrained(model, reserve_frames=40, **words) for _ in range(3))
    for frame in frames[:20]:
        for one in (session, still, alone):
            one.step(frame)
    with session.fork() as branch, still.fork() as beside_a_still_one:
        for frame in frames[20:]:
            want = alone.step(frame)
            assert equal(session.step(frame), want)
            geometry = branch.step(frame)
            assert equal(geometry, beside_a_still_one.step(frame))
            # a fork attends to what it shares and to its own frames apart, and merges: the same but for rounding
            assert torch.allclose(geometry.world_from_camera, want.world_from_camera, atol=1e-4)


def test_a_memory_that_forks_have_filled_says_how_to_get_room(model: GeometryModel, frames: list[VideoFrame]) -> None:
    session = GeometrySession.from_pretrained(model, memory="12 frames", policy="window", windows="none")
    for frame in frames[:14]:
        session.step(frame)
    with session.fork() as branch:
        with pytest.raises(MemoryFullError, match="open the session with more room for forks: reserve_frames of a map"):
            run_through(session, frames[14:])
        branch.close()
        run_through(session, frames[session.info.num_frames :])
    with pytest.raises(SettingError, match="Expected reserve_frames of 0 or more, but got -1"):
        GeometrySession.from_pretrained(model, reserve_frames=-1)


@pytest.mark.parametrize("number", rest_by_hand([12, 200], keep=1))
def test_forks_that_are_lost_without_being_closed_are_given_back(
    model: GeometryModel, frames: list[VideoFrame], number: int
) -> None:
    words = {"memory": "12 frames", "policy": "window", "windows": "none", "reserve_frames": 2}
    session, alone = (GeometrySession.from_pretrained(model, **words) for _ in range(2))
    for frame in frames[:14]:
        for one in (session, alone):
            one.step(frame)
    for _ in range(number):
        session.fork().step(frames[14])
    for frame in frames[14:17]:
        assert equal(session.step(frame), alone.step(frame))


def test_times_that_go_back_are_refused_and_leave_the_session_as_it_was(
    model: GeometryModel, frames: list[VideoFrame]
) -> None:
    session, alone = (GeometrySession.from_pretrained(model, memory="10MB") for _ in range(2))
    for frame in frames[:9]:
        for one in (session, alone):
            one.step(frame)
    for time_s in (0.3, frames[8].timestamp_s):
        with pytest.raises(InputError, match=f"Expected a picture after 0.8 s, but got one at {time_s:g} s; give them"):
            session.step(frames[9].image, time_s)
    with pytest.raises(InputError, match=r"^Expected a time for this picture too, for the last one was at 0\.8 s"):
        session.step(frames[9].image)
    assert session.info == alone.info
    assert equal(session.step(frames[9]), alone.step(frames[9]))
    untimed = GeometrySession.from_pretrained(model, memory="10MB")
    untimed.step(frames[0].image)
    untimed.step(frames[1].image)
    with pytest.raises(InputError, match=r"after 1 s, but got one at 0\.2 s; .* times for all or for none"):
        untimed.step(frames[2])


def test_info_tells_sizes_as_width_by_height(model: GeometryModel, frames: list[VideoFrame]) -> None:
    session = GeometrySession.from_pretrained(model, memory="10MB")
    for frame in frames[:9]:
        session.step(frame)
    assert (session.info.size, session.info.num_frames, session.info.num_kept) == ("126x98", 9, 9)
    assert 0 < session.num_bytes <= 10_000_000


def test_a_session_tells_what_was_seen_and_what_may_still_move(model: GeometryModel, frames: list[VideoFrame]) -> None:
    with GeometrySession.from_pretrained(model, windows="10/4") as session:
        assert (session.seen, session.num_final, session.provisional) == (None, 0, None)
        for frame in frames[:9]:
            session.step(frame)
        assert session.seen is not None
        assert torch.equal(session.seen.pixels, session._prepare(np.asarray(frames[8].image)).pixels)
        assert session.provisional is not None
        assert session.num_final < 9
        assert session.provisional.frame_index == tuple(range(session.num_final, 9))
        session.finish()
        assert session.num_final == 9


def test_a_session_without_a_frame_has_nothing_to_save(model: GeometryModel, tmp_path: Path) -> None:
    session = GeometrySession.from_pretrained(model)
    assert session.fork().info == session.info
    for attempt in (session.finish, lambda: session.save(tmp_path / "session")):
        with pytest.raises(InputError, match=r"nothing to (finish|save) before the first frame"):
            attempt()
    session.close()
    session.close()
    with pytest.raises(InputError, match="This session was closed"):
        session.step(np.zeros((98, 126, 3), np.uint8))


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"policy": "fifo"}, SettingError, "no memory policy 'fifo' for a map; choose one of context, keep-all"),
        ({"precision": "fp8"}, SettingError, "no precision 'fp8'; choose one of fp32, bf16, fp16, auto"),
        ({"backend": "cudnn"}, SettingError, "no attention backend 'cudnn'; choose one of sdpa"),
        ({"device": "tpu"}, SettingError, "no device 'tpu'; choose one of cpu, cuda, auto"),
        ({"fit": "stretch"}, SettingError, "Expected fit as crop, pad, square, but got 'stretch'"),
        ({"memory": "lots"}, SettingError, "'lots'"),
        ({"keyframes": "3"}, SettingError, "Expected keyframes as every:6 or flow:12px, but got '3'"),
        ({"windows": "4:1"}, SettingError, "Expected windows as 128/16"),
        ({"align": "icp"}, SettingError, "icp"),
        ({"size": 100}, InputError, "multiple of 14, got 100; try 98"),
        ({"size": 0}, InputError, "multiple of 14, got 0"),
        (
            {"budget": "2GB"},
            SettingError,
            r"from_pretrained has no keyword 'budget'; choose one of model, memory, policy",
        ),
    ],
)
def test_a_bad_word_is_answered_with_what_there_is(
    words: dict[str, str], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        GeometrySession.from_pretrained("micro-map", **words)


def test_an_unknown_model_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(CheckpointError, match="one of the names micro-map, "):
        GeometrySession.from_pretrained("nano-map")


def test_resume_refuses_other_files_in_one_sentence(
    model: GeometryModel, language: LanguageModel, frames: list[VideoFrame], tmp_path: Path
) -> None:
    with DialogueSession.from_pretrained(language, memory="50MB") as chat:
        chat.see(frames[0])
        chat.save(tmp_path / "chat.safetensors")
    with pytest.raises(SavedSessionError, match="is a saved dialogue; resume it with DialogueSession"):
        GeometrySession.resume(tmp_path / "chat.safetensors", model)
    with pytest.raises(InputError, match="missing"):
        GeometrySession.resume(tmp_path / "missing", model)


def test_memory_that_the_reserve_makes_too_small_says_so(model: GeometryModel, frames: list[VideoFrame]) -> None:
    session = GeometrySession.from_pretrained(model, memory="20MB", reserve_frames=10_000)
    with pytest.raises(BudgetError, match=r"room for 10000 frames set aside by reserve_frames; reserve fewer, or give"):
        session.step(frames[0])


def test_a_step_from_a_second_thread_is_refused_and_leaves_no_trace(
    model: GeometryModel, frames: list[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    prepare = Preprocessor.__call__

    def wait(self: Preprocessor, *given: Any) -> Any:
        begun.set()
        assert may_go_on.wait(10)
        return prepare(self, *given)

    session = GeometrySession.from_pretrained(model)
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(Preprocessor, "__call__", wait)
        first = pool.submit(session.step, frames[0])
        assert begun.wait(10)
        with pytest.raises(
            InputError, match=r"Another thread is in a step of this session; .* its own session or fork"
        ):
            session.step(frames[1])
        may_go_on.set()
        first.result()
    monkeypatch.undo()
    session.step(frames[1])
    assert session.info.num_frames == 2
