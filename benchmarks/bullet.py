"""Scenes of the models in pybullet's own data package, rendered by its software renderer into takes with truth.

Nobody here drew them: a table with toys, robots beside a shelf, a heap of random shapes, a stadium, a temple. A camera
goes around each, up and down a little, in steps as a hand would take them.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.errors import MissingExtraError
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.writer import TakeWriter

_NEAREST_M, _FARTHEST_M = 0.05, 100.0
_STEP_M = 1e-3
_FPS = 10.0
_LIGHT_DIRECTION = (1.0, -0.6, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulletScene:
    """What is loaded, and how the camera goes around it."""

    load: Callable[[Any], None]
    target: tuple[float, float, float]
    distance_m: float
    height_m: float
    """Above the target."""
    arc_deg: float
    """How far around it goes."""
    field_of_view_deg: float
    """Along the width."""


def _table(bullet: Any) -> None:
    bullet.loadURDF("plane.urdf")
    bullet.loadURDF("table/table.urdf")
    things = (
        ("duck_vhacd.urdf", 0.2, 0.1, 3.0),
        ("teddy_vhacd.urdf", -0.25, 0.12, 3.0),
        ("lego/lego.urdf", 0.0, -0.2, 3.0),
        ("soccerball.urdf", -0.4, -0.1, 0.2),
        ("objects/mug.urdf", 0.4, -0.1, 1.5),
        ("jenga/jenga.urdf", 0.1, 0.25, 2.0),
    )
    for file, x, y, scale in things:
        bullet.loadURDF(file, [x, y, 0.7], globalScaling=scale)


def _robots(bullet: Any) -> None:
    bullet.loadURDF("plane.urdf")
    bullet.loadSDF("kiva_shelf/model.sdf")
    bullet.loadURDF("r2d2.urdf", [1.2, 0.5, 0.5])
    bullet.loadURDF("husky/husky.urdf", [-1.3, 0.5, 0.2])
    bullet.loadURDF("racecar/racecar.urdf", [0.3, -1.1, 0.1])
    bullet.loadURDF("kuka_iiwa/model.urdf", [-0.6, -1.2, 0.0])


def _heap(bullet: Any) -> None:
    bullet.loadURDF("plane.urdf")
    rng = np.random.default_rng(0)
    for number in rng.choice(1000, 60, replace=False).tolist():
        x, y = rng.uniform(-1, 1, 2).tolist()
        bullet.loadURDF(f"random_urdfs/{number:03d}/{number:03d}.urdf", [x, y, 0.1], globalScaling=4)


def _stadium(bullet: Any) -> None:
    bullet.loadSDF("stadium.sdf")
    for x, y in ((0.0, 0.0), (2.0, 1.5), (-2.5, 1.0), (1.0, -2.5), (-1.5, -2.0)):
        bullet.loadURDF("r2d2.urdf", [x, y, 0.5])


def _temple(bullet: Any) -> None:
    bullet.loadURDF("samurai.urdf")


BULLET_SCENES: Mapping[str, BulletScene] = MappingProxyType(
    {
        "table": BulletScene(
            load=_table, target=(0.0, 0.0, 0.65), distance_m=1.4, height_m=0.6, arc_deg=110.0, field_of_view_deg=70.0
        ),
        "robots": BulletScene(
            load=_robots, target=(0.0, 0.0, 0.7), distance_m=3.4, height_m=1.0, arc_deg=100.0, field_of_view_deg=70.0
        ),
        "heap": BulletScene(
            load=_heap, target=(0.0, 0.0, 0.1), distance_m=2.0, height_m=1.0, arc_deg=120.0, field_of_view_deg=65.0
        ),
        "stadium": BulletScene(
            load=_stadium, target=(0.0, 0.0, 0.5), distance_m=6.0, height_m=2.0, arc_deg=90.0, field_of_view_deg=75.0
        ),
        "temple": BulletScene(
            load=_temple, target=(0.0, 0.0, 1.5), distance_m=7.0, height_m=1.5, arc_deg=60.0, field_of_view_deg=75.0
        ),
    }
)


def write_bullet(
    scene: BulletScene, out: Path, *, num_frames: int, size: tuple[int, int], overwrite: bool = False
) -> None:
    """A scene rendered into a take of this height and width."""
    height, width = size
    header = TakeHeader(
        content=Content.TRUTH, width=width, height=height, images=ImageFiles.PNG, depth=DepthFiles(_STEP_M), fps=_FPS
    )
    with TakeWriter(out, header, overwrite=overwrite) as writer:
        for frame in _frames(scene, num_frames, size):
            writer.write(frame)


def orbit(scene: BulletScene, num_frames: int) -> Float64[Tensor, "frames 4 4"]:
    """`world_from_camera` of a camera that looks at the target, nearly: eyes wander while it goes around."""
    return torch.stack([_camera(scene, index, num_frames) for index in range(num_frames)])


def bullet_intrinsics(scene: BulletScene, size: tuple[int, int]) -> Float64[Tensor, "3 3"]:
    """Square pixels, the middle of the picture between the middle pixels."""
    height, width = size
    focal = width / 2 / math.tan(math.radians(scene.field_of_view_deg) / 2)
    return torch.tensor([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]], dtype=torch.float64)


def _camera(scene: BulletScene, index: int, num_frames: int) -> Float64[Tensor, "4 4"]:
    turn = math.radians(scene.arc_deg) * index / max(1, num_frames - 1)
    away = scene.distance_m * (1 + 0.12 * math.sin(2.3 * turn + 1))
    target = np.array(scene.target)
    height = scene.height_m * (1 + 0.25 * math.sin(1.7 * turn))
    eye = target + np.array([away * math.cos(turn), away * math.sin(turn), height])
    gaze = target + 0.08 * scene.distance_m * np.array([math.sin(3 * turn), math.cos(2 * turn), math.sin(2 * turn)])
    forward = (gaze - eye) / np.linalg.norm(gaze - eye)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = eye
    return torch.from_numpy(pose)


def _frames(scene: BulletScene, num_frames: int, size: tuple[int, int]) -> Iterator[TakeFrame]:
    with _unprinted():
        bullet, data = _modules()
        client = bullet.connect(bullet.DIRECT)
    try:
        with _unprinted():
            bullet.setAdditionalSearchPath(data.getDataPath())
            scene.load(bullet)
        for index, pose in enumerate(orbit(scene, num_frames)):
            yield _rendered(bullet, scene, size, index, pose)
    finally:
        bullet.disconnect(client)


def _rendered(
    bullet: Any, scene: BulletScene, size: tuple[int, int], index: int, pose: Float64[Tensor, "4 4"]
) -> TakeFrame:
    height, width = size
    eye, forward, up = pose[:3, 3], pose[:3, 2], -pose[:3, 1]
    fov_y_deg = math.degrees(2 * math.atan(math.tan(math.radians(scene.field_of_view_deg) / 2) * height / width))
    view = bullet.computeViewMatrix(eye.tolist(), (eye + forward).tolist(), up.tolist())
    projection = bullet.computeProjectionMatrixFOV(fov_y_deg, width / height, _NEAREST_M, _FARTHEST_M)
    _, _, colours, buffer, _ = bullet.getCameraImage(
        width,
        height,
        view,
        projection,
        shadow=1,
        lightDirection=_LIGHT_DIRECTION,
        renderer=bullet.ER_TINY_RENDERER,
    )
    inverse = np.asarray(buffer, np.float64).reshape(size)
    depth = _FARTHEST_M * _NEAREST_M / (_FARTHEST_M - (_FARTHEST_M - _NEAREST_M) * inverse)
    return TakeFrame(
        index=index,
        timestamp_s=index / _FPS,
        world_from_camera=pose,
        intrinsics=bullet_intrinsics(scene, size),
        image=np.asarray(colours, np.uint8).reshape(height, width, 4)[..., :3].copy(),
        depth=np.where(inverse < 1, depth, 0).astype(np.float32),
    )


@contextmanager
def _unprinted() -> Iterator[None]:
    """What pybullet's loader prints past Python, dozens of lines a scene, goes nowhere."""
    sys.stdout.flush()
    kept = os.dup(1)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def _modules() -> tuple[Any, Any]:
    """pybullet and its data, which only this needs."""
    try:
        return import_module("pybullet"), import_module("pybullet_data")
    except ImportError as error:
        raise MissingExtraError("Scenes of pybullet need that package; run: pip install pybullet") from error
