"""What is fuzzed: each target makes a valid input once, and reads what became of it; only errors of ours may come."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

import longtake
from longtake.cli.main import main
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.outputs import choose_outputs
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SMALL
from longtake.video.source import open_source
from longtake.weights.load import load_geometry, save_geometry
from tests.fuzz.mutations import mutated, mutated_text
from tests.support.smallest import SMALLEST, smallest_model

GOLDEN_LANGUAGE = Path(__file__).parents[1] / "golden" / "vlm"
_WORLD = "world:9?frames=12&size=70x42"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One kind of input. `read` gets the folder of it, in which it may write to `out` alone."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], None]
    damage: Callable[[Path, Random], None] = field(default_factory=lambda: damage_a_file)
    share: int = 1
    """How many of a run's cases it gets, beside the others."""


def damage_a_file(folder: Path, random: Random) -> None:
    """Change one of the files, or all of a kind of trouble: remove it, or put a folder in its place."""
    path = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content, chance = path.read_bytes(), random.random()
    path.unlink()
    if chance < 0.02:
        path.mkdir()
    elif chance > 0.04:
        path.write_bytes(mutated(content, random))


def _pictures(num_frames: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    return (random.integers(0, 255, (42, 70, 3), dtype=np.uint8) for _ in range(num_frames))


def _save_session(folder: Path, *, windows: str | None, seal: bool) -> None:
    session = longtake.GeometrySession.from_pretrained(smallest_model(), memory="20MB", size=70, windows=windows)
    for picture in _pictures(14):
        session.step(picture)
    session.save(folder / "session.safetensors")
    if not seal:
        _as_an_earlier_version(folder / "session.safetensors")


def _as_an_earlier_version(path: Path) -> None:
    """Without the checksum, so that what the record says is all there is to go by."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]["sha256"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def _resume_session(folder: Path) -> None:
    session = longtake.GeometrySession.resume(folder / "session.safetensors", smallest_model())
    for picture in _pictures(2):
        session.step(picture)


@cache
def _language() -> "longtake.language.load.LanguageModel":  # type: ignore[name-defined]
    return longtake.load_language_model("micro-vqa")


def _save_dialogue(folder: Path, *, seal: bool) -> None:
    session = longtake.DialogueSession.from_pretrained(_language(), memory="20MB", size=56)
    for number, picture in enumerate(_pictures(5)):
        session.see(picture, float(number))
    session.save(folder / "session.safetensors")
    if not seal:
        _as_an_earlier_version(folder / "session.safetensors")


def _resume_dialogue(folder: Path) -> None:
    session = longtake.DialogueSession.resume(folder / "session.safetensors", _language(), max_tokens=1)
    session.see(next(_pictures(1)), 9.0)
    session.ask("have you seen a red ball?")


def _save_live(folder: Path) -> None:
    session = longtake.LiveSession(
        longtake.GeometrySession.from_pretrained(smallest_model(), memory="20MB", size=70),
        longtake.DialogueSession.from_pretrained(_language(), memory="20MB", size=56),
    )
    for number, picture in enumerate(_pictures(3)):
        session.step(picture, float(number))
    session.save(folder)


def _resume_live(folder: Path) -> None:
    longtake.LiveSession.resume(folder, map=smallest_model(), ask=_language())


def _mapping(out: Path, *, resume: bool) -> Run:
    settings = MapSettings(
        session=SMALL, outputs=choose_outputs(("tum", "ply", "depth", "kitti")), checkpoints=CheckpointRule(2)
    )
    return map_video(open_source(_WORLD), smallest_model(), out, settings, resume=resume)


def _break_off(folder: Path) -> None:
    events = iter(_mapping(folder / "out", resume=False))
    for _ in events:
        if (folder / "out" / "depth" / "000005.png").exists():
            break
    events.close()


def _go_on(folder: Path) -> None:
    with _mapping(folder / "out", resume=True) as events:
        for number, _ in enumerate(events):
            if number == 5:
                break


def _write_weights(folder: Path) -> None:
    save_geometry(smallest_model(), folder / "model.safetensors")
    torch.save(smallest_model().state_dict(), folder / "model.pt")
    places = dict.fromkeys(smallest_model().state_dict(), "model.safetensors")
    (folder / "other.index.json").write_text(json.dumps({"weight_map": places}))


def _read_weights(folder: Path) -> None:
    for name, config in (("model.safetensors", None), ("model.pt", SMALLEST), ("other.index.json", SMALLEST)):
        with _errors_of_ours():
            load_geometry(folder / name, config)


def _copy_language(folder: Path) -> None:
    bundled = Path(longtake.__file__).parent / "models" / "micro-vqa"
    for path in bundled.iterdir():
        shutil.copyfile(path, folder / path.name)


def _read_language(folder: Path) -> None:
    longtake.load_language_model(folder)


def _write_take(folder: Path) -> None:
    with patch.object(sys, "argv", _arguments(f"world --out {folder / 'take'} --frames 3 --size 28x14 --images png")):
        _run_main()
    (folder / "out").mkdir()
    for _ in _mapping(folder / "mapped", resume=False):
        pass


def _read_take(folder: Path) -> None:
    for name in ("take", "mapped"):
        with _errors_of_ours():
            take = longtake.open_take(folder / name)
            for read in (take.depth, take.image, take.confidence):
                with _errors_of_ours():
                    read(0)
            for part in ("summary", "truth", "questions"):
                with _errors_of_ours():
                    getattr(take, part)
            with _errors_of_ours():
                take.cloud(100)


def _read_truth(folder: Path) -> None:
    with _errors_of_ours():
        longtake.evaluate(folder / "mapped", folder / "take")
    with _errors_of_ours():
        longtake.evaluate(folder / "mapped" / "poses.txt", folder / "take" / "poses.txt")


def _write_pictures(folder: Path) -> None:
    for number, (picture, suffix) in enumerate(zip(_pictures(4), ("png", "jpg", "gif", "bmp"), strict=True)):
        Image.fromarray(picture).save(folder / f"{number:03d}.{suffix}")


def _watch(folder: Path) -> None:
    for _ in longtake.open_video(folder):
        pass


def _write_video(folder: Path) -> None:
    import av

    for suffix, codec in (("mp4", "mpeg4"), ("mkv", "mpeg4")):
        with av.open(folder / f"video.{suffix}", "w") as container:
            stream = container.add_stream(codec, rate=10)
            stream.width, stream.height, stream.pix_fmt = 70, 42, "yuv420p"
            for picture in _pictures(6):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
            container.mux(stream.encode())


def _watch_videos(folder: Path) -> None:
    for path in sorted(folder.glob("video.*")):
        with _errors_of_ours():
            _watch(path)


def _write_address(folder: Path) -> None:
    (folder / "address").write_text("world:9?frames=3&size=9x9&fps=10")


def _damage_text(folder: Path, random: Random) -> None:
    (path,) = folder.glob("*")
    text = path.read_text()
    for _ in range(random.choice((1, 1, 2, 3))):
        text = mutated_text(text, random)
    path.write_text(text, errors="surrogatepass")


def _watch_world(folder: Path) -> None:
    for number, _ in enumerate(longtake.open_video((folder / "address").read_text(errors="surrogatepass"))):
        if number == 2:
            break


_WHOLE = ("--out", "--frames")
"""Not damaged, nor what follows: where the case may write, and how long a world is filmed, which nothing limits."""
_COMMANDS = (
    "map nothing.mp4 --out out --model tiny --memory 20MB --size 70 --fps 3 --stride 2 --start 0:01 --end 9",
    "map nothing.mp4 --out out --policy window --keyframes 3 --windows 8/2 --align robust --fit pad --format ply,tum",
    "map nothing.mp4 --out out --drop-percent 9 --voxel 0.1 --max-points 99 --checkpoint-every 3 --device cpu",
    "world --out out --frames 2 --size 28x14 --seed 7 --fps 10 --images png --depth npz --questions 0",
    "export nothing --out out --format colmap --intrinsics 50,50,35,21 --up y --scale-from 2",
    "eval nothing nothing --align sim3 --delta 1f --max-gap 0.02 --offset 1 --only trajectory --fps 3",
    "models nothing",
    "explain positions --seconds 9 --fps 2",
    "ask nothing.mp4 what? --model nothing --memory 9MB --fps 2 --chunk 2",
    "live nothing.mp4 --ask what? --memory 9MB",
)


def _write_options(folder: Path) -> None:
    (folder / "options").write_text("\n".join(_COMMANDS))


def _damage_options(folder: Path, random: Random) -> None:
    words = random.choice(_COMMANDS).split()
    for _ in range(random.choice((1, 1, 2, 3))):
        place = random.choice(
            [place for place in range(1, len(words)) if not {words[place - 1], words[place]} & {*_WHOLE}]
        )
        words[place] = mutated_text(words[place], random)
    (folder / "options").write_text(json.dumps(words))


def _run_options(folder: Path) -> None:
    words = json.loads((folder / "options").read_text())
    words = [str(folder / "out") if word == "out" else word for word in words]
    with patch.object(sys, "argv", ["longtake", *words]):
        _run_main()


def _arguments(command: str) -> list[str]:
    return ["longtake", *command.split()]


def _run_main() -> None:
    """The command line in this process: it ends in an exit code, and never in an exception."""
    with suppress(SystemExit):
        main()


@contextmanager
def _errors_of_ours() -> Iterator[None]:
    try:
        yield
    except longtake.LongtakeError as error:
        assert_one_sentence(error)


def assert_one_sentence(error: BaseException) -> None:
    """What an error of ours must be."""
    assert "\n" not in str(error).strip(), f"more than one line: {error}"


TARGETS = (
    Target(name="session", make=lambda folder: _save_session(folder, windows=None, seal=True), read=_resume_session),
    Target(
        name="session-of-windows",
        make=lambda folder: _save_session(folder, windows="10/2", seal=True),
        read=_resume_session,
    ),
    Target(
        name="earlier-session",
        make=lambda folder: _save_session(folder, windows=None, seal=False),
        read=_resume_session,
        share=3,
    ),
    Target(
        name="earlier-session-of-windows",
        make=lambda folder: _save_session(folder, windows="10/2", seal=False),
        read=_resume_session,
        share=3,
    ),
    Target(name="dialogue", make=lambda folder: _save_dialogue(folder, seal=True), read=_resume_dialogue),
    Target(
        name="earlier-dialogue", make=lambda folder: _save_dialogue(folder, seal=False), read=_resume_dialogue, share=2
    ),
    Target(name="live-session", make=_save_live, read=_resume_live),
    Target(name="resume-folder", make=_break_off, read=_go_on),
    Target(name="weights", make=_write_weights, read=_read_weights, share=4),
    Target(name="model-folder", make=_copy_language, read=_read_language),
    Target(name="take", make=_write_take, read=_read_take, share=4),
    Target(name="truth", make=_write_take, read=_read_truth, share=4),
    Target(name="pictures", make=_write_pictures, read=_watch, share=4),
    Target(name="video", make=_write_video, read=_watch_videos, share=4),
    Target(name="world", make=_write_address, read=_watch_world, damage=_damage_text, share=2),
    Target(name="options", make=_write_options, read=_run_options, damage=_damage_options, share=3),
)
