"""Small pictures of what a session sees now: the frame, its depth, and how sure the network is of it, as JPEG."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from longtake.server.messages import BinaryMessage, Codec, MessageKind, microseconds
from longtake.server.points import confidence_bytes

SMALLEST_PX, LARGEST_PX = 16, 640
MOST_BYTES = 128_000
"""Of one picture, about; one that would be larger is packed more tightly."""
_QUALITIES = (80, 50, 20)
_NEAR_PERCENT, _FAR_PERCENT = 1.0, 99.0


class Of(StrEnum):
    """What a preview shows."""

    IMAGE = "image"
    DEPTH = "depth"
    CONFIDENCE = "confidence"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownDepth:
    """What the network said of a frame."""

    frame: int
    time_s: float
    depth: Float[np.ndarray, "height width"]
    confidence: Float[np.ndarray, "height width"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """The newest frame, and the newest depth, which may be of one before it."""

    frame: int
    time_s: float
    image: UInt8[np.ndarray, "height width 3"]
    """With a longer side of at most `LARGEST_PX`."""
    known: KnownDepth | None = None

    def messages(self, longer_px: int, after: "Snapshot | None" = None) -> Iterator[bytes]:
        """Previews, their longer sides at most so many pixels, of what is not the same as in an earlier snapshot."""
        if after is None or self.frame != after.frame:
            yield _message(Of.IMAGE, self.frame, self.time_s, Image.fromarray(self.image), longer_px)
        known = self.known
        if known is None or (after is not None and known is after.known):
            return
        near, far = _range(known.depth)
        grey = Image.fromarray(inverse_depth_bytes(known.depth, near, far))
        yield _message(Of.DEPTH, known.frame, known.time_s, grey, longer_px, near=near, far=far)
        sure = Image.fromarray(confidence_bytes(known.confidence))
        yield _message(Of.CONFIDENCE, known.frame, known.time_s, sure, longer_px)


def small_picture(picture: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "small_height small_width 3"]:
    """A copy that previews are made of."""
    return np.asarray(_fitted(Image.fromarray(picture), LARGEST_PX))


def inverse_depth_bytes(
    depth: Float[np.ndarray, "height width"], near: float, far: float
) -> UInt8[np.ndarray, "height width"]:
    """Grey g for 1/depth = 1/far + g/255 (1/near - 1/far); what is farther, or unknown, is 0."""
    inverse = 1 / np.where(np.isfinite(depth) & (depth > 0), depth, np.inf)
    share = (inverse - 1 / far) / (1 / near - 1 / far)
    grey: UInt8[np.ndarray, "height width"] = np.rint(share.clip(0, 1) * 255).astype(np.uint8)
    return grey


def _range(depth: Float[np.ndarray, "height width"]) -> tuple[float, float]:
    """Near and far, with little beyond; never the same."""
    known = depth[np.isfinite(depth) & (depth > 0)]
    if not len(known):
        return 1.0, 2.0
    near, far = (float(value) for value in np.percentile(known, (_NEAR_PERCENT, _FAR_PERCENT)))
    return near, max(far, near * 1.01)


def _fitted(picture: Image.Image, longer_px: int) -> Image.Image:
    scale = longer_px / max(picture.size)
    if scale >= 1:
        return picture
    width, height = (max(1, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)


def _message(of: Of, frame: int, time_s: float, picture: Image.Image, longer_px: int, **more: Any) -> bytes:
    small = _fitted(picture, longer_px)
    fields = {"frame": frame, "time_s": time_s, "of": of.value, "width": small.width, "height": small.height, **more}
    message = BinaryMessage(
        kind=MessageKind.PREVIEW,
        codec=Codec.JPEG,
        sequence=frame,
        time_us=microseconds(time_s),
        fields=fields,
        payload=_jpeg(small),
    )
    return message.pack()


def _jpeg(picture: Image.Image) -> bytes:
    for quality in _QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        if file.tell() <= MOST_BYTES:
            break
    return file.getvalue()
