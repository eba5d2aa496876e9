"""Picture files of other formats, of too many pixels, or damaged: one sentence each, and no memory for them."""

import os
import resource
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from warnings import catch_warnings

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError
from longtake.takes.picture_files import open_picture


def png(width: int, height: int) -> bytes:
    """A PNG of grey bits that declares its size and holds one row."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 48\n%%EndComments\nshowpage\n%%EOF\n"
GIF = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0)


def test_postscript_under_another_name_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with pytest.raises(InputError, match="Expected a picture at"), open_picture(tmp_path / "a.png") as image:
        image.load()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("content", [GIF + b"\x08\0;", b"BLP2" + bytes(200), b"8BPS" + bytes(60), b"", b"\x89PNG"])
def test_formats_that_are_not_meant_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with (
        pytest.raises(InputError, match=r"but it cannot be read .*; check the file"),
        open_picture(tmp_path / "a.png") as image,
    ):
        image.load()


@pytest.mark.parametrize("size", [(178_000_000, 1), (100_000, 100_000), (10_000, 9_000), (8_000, 7_000)])
def test_more_pixels_than_a_frame_may_have_are_refused_before_they_are_read(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    (tmp_path / "a.png").write_bytes(png(*size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        pytest.raises(InputError, match=r"Expected (at most 50 million pixels in|a picture at)"),
        open_picture(tmp_path / "a.png") as image,
    ):
        image.load()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # of 1024 bytes


@pytest.mark.parametrize("name", ["a.avif", "a.jp2", "a.webp", "a.tif", "a.jpg", "a.bmp", "a.ppm"])
def test_damage_anywhere_is_one_sentence_or_a_picture(tmp_path: Path, name: str) -> None:
    drawn = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    path = tmp_path / name
    Image.fromarray(drawn).save(path)
    whole, random = path.read_bytes(), np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged[: random.integers(1, 2 * len(whole))])
        with catch_warnings(action="ignore"), suppress(InputError), open_picture(path) as image:
            assert image.convert("RGB").size == image.size
