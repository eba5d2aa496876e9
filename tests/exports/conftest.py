"""A filmed walk, its truth as if it were a network's result; the way of a pixel from frame to frame; ways to write."""

import io
import itertools
import json
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.sink import Sink, SinkState
from longtake.spatial.placement import Placement
from longtake.types import FrameKind
from longtake.world.tour import Tour, View

WIDTH, HEIGHT = 64, 48
FINER = 3
CUT_ROWS = 5
ORACLE = Path(__file__).parents[2] / ".venv-oracles" / "bin" / "python"


@pytest.fixture(scope="session")
def views() -> list[View]:
    """Ten frames of a walk, some steps apart, three times as fine as the network's pixels."""
    tour = Tour(seed=7, width=FINER * WIDTH, height=FINER * HEIGHT)
    return list(itertools.islice(tour.views(), 0, 50, 5))


def intrinsics_in(k: torch.Tensor, scale: float, cut_rows: int) -> torch.Tensor:
    """Intrinsics for pixels of another size, after rows are cut off above; a pixel's centre is a whole number."""
    (fx, _, cx), (_, fy, cy), _ = k.double().tolist()
    cx, cy = (cx + 0.5) * scale - 0.5, (cy + 0.5) * scale - 0.5 - cut_rows
    return torch.tensor([[fx * scale, 0, cx], [0, fy * scale, cy], [0, 0, 1]], dtype=torch.float64)


def frame_of(view: View, *, cut_rows: int) -> MappedFrame:
    """The truth of a view at the middle of every third pixel, which is where the network's pixels have theirs."""
    picture = (view.image.movedim(0, -1) * 255).round().byte().numpy()
    middle = np.s_[1::FINER, 1::FINER]
    kept = np.s_[cut_rows : HEIGHT - cut_rows]
    depth = view.depth.numpy()[middle][kept]
    return MappedFrame(
        index=view.index // 5,
        timestamp_s=view.timestamp_s,
        status=FrameStatus.OK,
        kind=FrameKind.KEYFRAME if view.index % 2 else FrameKind.PASSING,
        window=view.index // 20,
        world_from_camera=view.world_from_camera,
        intrinsics=intrinsics_in(view.intrinsics, 1 / FINER, cut_rows),
        depth=depth,
        confidence=(1 + 5 / depth).astype(np.float32),
        image=np.ascontiguousarray(picture[middle][kept]),
        source_image=picture,
        placement=Placement(FINER * WIDTH, FINER * HEIGHT, 1 / FINER, 1 / FINER, 0.0, float(-cut_rows)),
    )


@pytest.fixture(scope="session")
def cut_frames(views: list[View]) -> list[MappedFrame]:
    """The walk as the network sees it: a third as fine, some rows above and below cut off."""
    return [frame_of(view, cut_rows=CUT_ROWS) for view in views]


@pytest.fixture(scope="session")
def frames(views: list[View]) -> list[MappedFrame]:
    """The walk, the source's pixels those of the network."""
    placed = Placement(WIDTH, HEIGHT, 1.0, 1.0)
    whole = [frame_of(view, cut_rows=0) for view in views]
    return [replace(frame, source_image=frame.image, placement=placed) for frame in whole]


@dataclass(frozen=True)
class Seen:
    """What a file says of one frame."""

    world_from_camera: np.ndarray
    intrinsics: np.ndarray
    depth: np.ndarray

    def points(self) -> np.ndarray:
        v, u = np.mgrid[: self.depth.shape[0], : self.depth.shape[1]]
        (fx, _, cx), (_, fy, cy), _ = self.intrinsics.tolist()
        depth = self.depth.astype(np.float64)
        before = np.stack([(u - cx) / fx * depth, (v - cy) / fy * depth, depth], axis=-1).reshape(-1, 3)
        return before @ self.world_from_camera[:3, :3].T + self.world_from_camera[:3, 3]

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Column, row and depth of points of the world."""
        before = (points - self.world_from_camera[:3, 3]) @ self.world_from_camera[:3, :3]
        (fx, _, cx), (_, fy, cy), _ = self.intrinsics.tolist()
        x, y, z = before.T
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.stack([fx * x / z + cx, fy * y / z + cy, z], axis=-1)


def stray_px(found: Sequence[Seen], true: Sequence[Seen]) -> float:
    """The farthest that any pixel of any frame lands in any other frame from where it truly does."""
    worst = 0.0
    height, width = true[0].depth.shape
    for here, there in itertools.permutations(range(len(true)), 2):
        want = true[there].pixels(true[here].points())
        got = found[there].pixels(found[here].points())
        u, v, z = want.T
        counts = (z > 0.1) & (u > -0.5) & (u < width - 0.5) & (v > -0.5) & (v < height - 0.5)
        if counts.any():
            worst = max(worst, float(np.linalg.norm((got - want)[counts, :2], axis=-1).max()))
    return worst


@pytest.fixture(scope="session")
def seen() -> Callable[..., Seen]:
    return Seen


@pytest.fixture(scope="session")
def truth() -> Callable[[Sequence[MappedFrame]], list[Seen]]:
    """What is true of frames, straight from the walk."""

    def of(frames: Sequence[MappedFrame]) -> list[Seen]:
        return [Seen(f.world_from_camera.numpy(), f.intrinsics.numpy(), f.depth) for f in frames]

    return of


@pytest.fixture(scope="session")
def stray() -> Callable[[Sequence[Seen], Sequence[Seen]], float]:
    return stray_px


@pytest.fixture(scope="session")
def files_of() -> Callable[[Path], dict[str, bytes]]:
    """All files under a folder, byte by byte."""
    return lambda folder: {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def write_frames(sink: Sink, frames: Sequence[MappedFrame]) -> None:
    with sink:
        for frame in frames:
            sink.write(frame)


@pytest.fixture(scope="session")
def write_all() -> Callable[[Sink, Sequence[MappedFrame]], None]:
    """Writes frames into a sink and closes it."""
    return write_frames


def store(state: SinkState) -> SinkState:
    packed = io.BytesIO()
    np.savez(packed, **state.arrays)
    packed.seek(0)
    with np.load(packed) as arrays:
        return SinkState(values=json.loads(json.dumps(state.values)), arrays={name: arrays[name] for name in arrays})


@pytest.fixture(scope="session")
def stored() -> Callable[[SinkState], SinkState]:
    """A sink's state as it comes back from disk."""
    return store


def ask_oracle(program: str, *arguments: str, home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [ORACLE, "-c", program, *arguments],
        env={"HOME": str(home), "OMP_NUM_THREADS": "1"},  # evo writes its settings at home
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="session")
def ask() -> Callable[..., dict[str, Any]]:
    """Runs a program where others' readers are installed; what it prints is JSON."""
    if not ORACLE.exists():
        pytest.skip("others' readers are not fetched; run: make test-extra")
    return ask_oracle


@contextmanager
def limit_files(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def files_no_longer_than() -> Callable[[int], AbstractContextManager[None]]:
    """As on a full disk, writes beyond so many bytes fail; a write may succeed in part."""
    return limit_files
