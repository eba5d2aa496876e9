"""Some points of a PLY file, evenly chosen, without reading the rest into memory."""

from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from longtake.errors import InputError

_NUMBER_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "<i2"),
    **dict.fromkeys(("ushort", "uint16"), "<u2"),
    **dict.fromkeys(("int", "int32"), "<i4"),
    **dict.fromkeys(("uint", "uint32"), "<u4"),
    **dict.fromkeys(("float", "float32"), "<f4"),
    **dict.fromkeys(("double", "float64"), "<f8"),
}
_MOST_HEADER_LINES = 200
_LONGEST_HEADER_LINE = 4096
_SEED = 0
_GREY = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSample:
    """Points with colours, and normals that are zero where unknown; in the order of their file."""

    points: Float32[np.ndarray, "points 3"]
    colours: UInt8[np.ndarray, "points 3"]
    normals: Float32[np.ndarray, "points 3"]
    num_in_file: int


def read_some_points(path: Path, most: int) -> PointSample:
    """The same points each time; all finite ones of a file that has no more than `most`."""
    try:
        with path.open("rb") as file:
            count, vertex, num_header_bytes = _read_header(file, path)
        num_bytes = num_header_bytes + count * vertex.itemsize
        if path.stat().st_size < num_bytes:
            raise InputError(f"Expected {count} points in {path}, but it ends before them; make the cloud again.")
        vertices = np.memmap(path, vertex, "r", num_header_bytes, (count,)) if count else np.empty(0, vertex)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    return _sample(np.array(vertices[_chosen(count, most)]), count)


def _chosen(count: int, most: int) -> np.ndarray:
    """Drawn, for points are ordered by voxels and a regular choice among them would show as stripes."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(_SEED).choice(count, most, replace=False, shuffle=False))


def _sample(vertices: np.ndarray, count: int) -> PointSample:
    points = _columns(vertices, ("x", "y", "z"), 0).astype(np.float32)
    finite = np.isfinite(points).all(axis=1)
    normals = _columns(vertices, ("nx", "ny", "nz"), 0).astype(np.float32)
    return PointSample(
        points=points[finite],
        colours=_columns(vertices, ("red", "green", "blue"), _GREY).astype(np.uint8)[finite],
        normals=np.nan_to_num(normals, nan=0.0, posinf=0.0, neginf=0.0)[finite],
        num_in_file=count,
    )


def _columns(vertices: np.ndarray, names: tuple[str, ...], otherwise: int) -> np.ndarray:
    if not set(names) <= set(vertices.dtype.names or ()):
        return np.full((len(vertices), len(names)), otherwise)
    return np.stack([vertices[name] for name in names], axis=1)


def _read_header(file: BufferedReader, path: Path) -> tuple[int, np.dtype, int]:
    """How many vertices, what each is made of, and where the first begins."""
    lines: list[list[str]] = []
    while not lines or lines[-1] != ["end_header"]:
        line = file.readline(_LONGEST_HEADER_LINE)
        lines.append(line.decode("ascii", "replace").split())
        if not line or lines[0] != ["ply"] or len(lines) > _MOST_HEADER_LINES:
            raise InputError(f"Expected a PLY file in {path}, but it has no header of one; make the cloud again.")
    elements = [place for place, words in enumerate(lines) if words[:1] == ["element"]]
    try:
        if ["format", "binary_little_endian", "1.0"] not in lines:
            raise ValueError("not binary and little-endian")
        _, name, count = lines[elements[0]]
        properties = [words for words in lines[elements[0] : (*elements, None)[1]] if words[:1] == ["property"]]
        vertex = np.dtype([(name, _NUMBER_TYPES[kind]) for _, kind, name in properties])
        if name != "vertex" or int(count) < 0 or not {"x", "y", "z"} <= set(vertex.names or ()):
            raise ValueError("no vertices first")
        return int(count), vertex, file.tell()
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"Expected points of numbers in a binary little-endian PLY file {path}, but it is another sort ({error})."
        ) from error
