"""What files of a result are called, for those who write them and those who look for them."""

from longtake.takes.header import POSES_NAME

CLOUD_NAME = "cloud.ply"
KITTI_NAME = "poses.kitti"
SESSION_NAME = "session.safetensors"
EXPORT_FOLDER = "export"
"""Below a mapped folder: what was exported from it when the video had ended."""
RECORD_NAME = "export.json"
NAMES = {
    "tum": POSES_NAME,
    "kitti": KITTI_NAME,
    "ply": CLOUD_NAME,
    "take": "take",
    "colmap": "colmap",
    "nerfstudio": "nerfstudio",
    "glb": "scene.glb",
    "rrd": "rerun",
}
"""Formats of an export, and what they are called in its folder."""
