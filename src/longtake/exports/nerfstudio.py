"""A folder as nerfstudio reads it: `transforms.json`, the source's images, and the points to begin with.

nerfstudio's cameras look along -z with y up, and its pixels are counted from the image's corner. The world stays ours,
so that there is no `applied_transform`: nerfstudio turns the world upright by itself.
"""

import json
from pathlib import Path
from typing import Any

import torch

from longtake.exports.cloud import CloudSettings
from longtake.exports.ply import write_ply
from longtake.exports.scene_folder import SceneSink
from longtake.exports.source_cameras import CORNER, PinholeLens, SourceCamera, different_lenses
from longtake.takes.header import Unit
from longtake.takes.images import ImageFiles

TRANSFORMS_NAME = "transforms.json"
POINTS_NAME = "sparse_pc.ply"

_OURS_FROM_OPENGL = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
_NO_DISTORTION = dict.fromkeys(("k1", "k2", "p1", "p2"), 0.0)


class NerfstudioSink(SceneSink):
    """`transforms.json`, the images and `sparse_pc.ply`."""

    def __init__(
        self,
        folder: Path,
        settings: CloudSettings,
        *,
        unit: Unit = Unit.MODEL,
        images: ImageFiles = ImageFiles.JPEG,
        overwrite: bool = False,
    ) -> None:
        self._unit = unit
        super().__init__(folder, settings, images, own=[POINTS_NAME, TRANSFORMS_NAME], overwrite=overwrite)

    def _write_lists(self) -> None:
        write_ply(self._folder / POINTS_NAME, self.cloud.cloud(), unit=self._unit)
        self._replace(TRANSFORMS_NAME, self._transforms().encode())

    def _transforms(self) -> str:
        """One lens stands once for all frames; several stand each in its frame, where nerfstudio looks for them."""
        lenses = different_lenses(self._cameras)
        shared = _lens_fields(lenses[0]) if len(lenses) == 1 else {}
        head = {"camera_model": "OPENCV", **_NO_DISTORTION, **shared, "ply_file_path": POINTS_NAME}
        frames = [self._frame(camera, own_lens=len(lenses) > 1) for camera in self._cameras]
        return _one_line_a_frame(head, frames)

    def _frame(self, camera: SourceCamera, *, own_lens: bool) -> dict[str, Any]:
        return {
            "file_path": self._images.path(camera.index),
            **(_lens_fields(camera.lens) if own_lens else {}),
            "transform_matrix": (camera.world_from_camera @ _OURS_FROM_OPENGL).tolist(),
        }


def _lens_fields(lens: PinholeLens) -> dict[str, Any]:
    return {
        "w": lens.width,
        "h": lens.height,
        "fl_x": lens.fx,
        "fl_y": lens.fy,
        "cx": lens.cx + CORNER,
        "cy": lens.cy + CORNER,
    }


def _one_line_a_frame(head: dict[str, Any], frames: list[dict[str, Any]]) -> str:
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines = ",\n".join(json.dumps(frame, allow_nan=False) for frame in frames)
    return "{\n" + ",\n".join([*fields, f'"frames": [\n{lines}\n]']) + "\n}\n"
