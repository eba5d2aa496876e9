"""Frames as clients send them, as pixels; what is too large is refused before it is unpacked."""

import io
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError
from longtake.server.messages import BinaryMessage, Codec, MessageKind
from longtake.server.problems import RequestError
from longtake.takes.picture_files import reading_picture
from longtake.video.resize import upright_rgb

MAX_FRAME_BYTES = 8_000_000
MAX_FRAME_PIXELS = 16_000_000
_FORMATS = {Codec.JPEG: "JPEG", Codec.PNG: "PNG"}


def decode_frame(message: BinaryMessage) -> UInt8[np.ndarray, "height width 3"]:
    """The picture of a message."""
    if message.kind is not MessageKind.FRAME or message.codec not in (Codec.RAW, *_FORMATS):
        raise RequestError("bad_message", "Expected a frame as raw pixels, JPEG or PNG.")
    if len(message.payload) > MAX_FRAME_BYTES:
        raise RequestError(
            "frame_too_large",
            f"Expected a frame of at most {MAX_FRAME_BYTES} bytes, but got {len(message.payload)}.",
            status=413,
        )
    return _raw(message) if message.codec is Codec.RAW else _packed(message.payload, _FORMATS[message.codec])


def _raw(message: BinaryMessage) -> UInt8[np.ndarray, "height width 3"]:
    width, height = _length(message.fields.get("width")), _length(message.fields.get("height"))
    expected = width * height * 3
    if len(message.payload) != expected:
        raise RequestError(
            "bad_message",
            f"Expected {expected} bytes for {width}x{height} pixels, but got {len(message.payload)}.",
        )
    return np.frombuffer(message.payload, np.uint8).reshape(height, width, 3)


def _length(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 < given <= MAX_FRAME_PIXELS:
        raise RequestError("bad_message", "Expected the fields width and height of a raw frame, as whole numbers.")
    return given


def _packed(content: bytes, form: str) -> UInt8[np.ndarray, "height width 3"]:
    try:
        with (
            reading_picture("a whole picture", "send it again"),
            Image.open(io.BytesIO(content), formats=[form]) as file,
        ):
            _require_pixels(file.size)
            return np.asarray(upright_rgb(file))
    except InputError as error:
        raise RequestError("bad_frame", f"Expected a {form} picture, but it cannot be read; send it again.") from error


def _require_pixels(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MAX_FRAME_PIXELS:
        raise RequestError(
            "frame_too_large",
            f"Expected a frame of at most {MAX_FRAME_PIXELS} pixels, but got {width}x{height}.",
            status=413,
        )
