"""Rotations, rigid poses and pinhole cameras: OpenCV axes, poses as `world_from_camera`."""
