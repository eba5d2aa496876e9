"""Turns about one axis, as matrices; x right, y down, z forward."""

import numpy as np
from jaxtyping import Float


def about_x(angle: float) -> Float[np.ndarray, "3 3"]:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])


def about_y(angle: float) -> Float[np.ndarray, "3 3"]:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])


def about_z(angle: float) -> Float[np.ndarray, "3 3"]:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
