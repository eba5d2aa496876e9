"""A binary glTF 2.0 file put together from nodes, cameras and vertices.

0           12                20                                     28 + JSON
│ glTF 2 len │ len "JSON"      │ JSON, filled up with spaces to 4    │ len "BIN\\0" │ vertices, each view filled up to 4
"""

import json
import struct
from enum import IntEnum
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from longtake import __version__

_FLOAT = 5126
_VERTICES = 34962


class Primitive(IntEnum):
    """What vertices make."""

    POINTS = 0
    LINES = 1


class GltfFile:
    """Grows by meshes, cameras and nodes; the numbers they return name them."""

    def __init__(self) -> None:
        self._lists: dict[str, list[Any]] = {
            name: [] for name in ("nodes", "meshes", "cameras", "accessors", "bufferViews")
        }
        self._binary: list[bytes] = []
        self._num_bytes = 0

    def add_mesh(
        self,
        kind: Primitive,
        positions: Float[np.ndarray, "vertices 3"],
        colours: UInt8[np.ndarray, "vertices 3"],
    ) -> int:
        """Coloured points or lines, one vertex at least; colours are what a screen shows (sRGB)."""
        attributes = {
            "POSITION": self._add_positions(positions.astype("<f4")),
            "COLOR_0": self._add_accessor(light_of(colours), {}),
        }
        return self._add("meshes", {"primitives": [{"mode": int(kind), "attributes": attributes}]})

    def add_camera(self, camera: dict[str, Any]) -> int:
        return self._add("cameras", camera)

    def add_node(self, node: dict[str, Any]) -> int:
        return self._add("nodes", node)

    def to_bytes(self, root: int, extras: dict[str, Any]) -> bytes:
        """The whole file, whose scene is one node and what hangs on it."""
        document = {
            "asset": {"version": "2.0", "generator": f"longtake {__version__}", "extras": extras},
            "scene": 0,
            "scenes": [{"nodes": [root]}],
            **{name: entries for name, entries in self._lists.items() if entries},
            **({"buffers": [{"byteLength": self._num_bytes}]} if self._num_bytes else {}),
        }
        text = _filled(json.dumps(document, allow_nan=False).encode(), b" ")
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        if self._num_bytes:
            chunks += struct.pack("<I4s", self._num_bytes, b"BIN\0") + b"".join(self._binary)
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks

    def _add_positions(self, positions: Float[np.ndarray, "vertices 3"]) -> int:
        bounds = {"min": positions.min(axis=0).tolist(), "max": positions.max(axis=0).tolist()}
        return self._add_accessor(positions, bounds)

    def _add_accessor(self, values: Float[np.ndarray, "vertices 3"], more: dict[str, Any]) -> int:
        content = values.tobytes()
        view = {"buffer": 0, "byteOffset": self._num_bytes, "byteLength": len(content), "target": _VERTICES}
        self._binary.append(_filled(content, b"\0"))
        self._num_bytes += len(self._binary[-1])
        accessor = {"bufferView": self._add("bufferViews", view), "componentType": _FLOAT, "count": len(values)}
        return self._add("accessors", {**accessor, "type": "VEC3", **more})

    def _add(self, name: str, entry: dict[str, Any]) -> int:
        self._lists[name].append(entry)
        return len(self._lists[name]) - 1


def light_of(colours: UInt8[np.ndarray, "vertices 3"]) -> Float[np.ndarray, "vertices 3"]:
    """glTF's vertex colours are linear light: sRGB's transfer curve undone."""
    shown = np.arange(256) / 255
    light = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4).astype("<f4")
    looked_up: Float[np.ndarray, "vertices 3"] = light[colours]
    return looked_up


def _filled(content: bytes, filler: bytes) -> bytes:
    return content + filler * (-len(content) % 4)
