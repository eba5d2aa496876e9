"""A session's map as a take that grows while frames come; what is owed of it survives with the session's saves.

In the folder of a save:
  owed.safetensors  what the network saw of the frames whose results are not final yet
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from longtake.api.geometry_session import GeometrySession
from longtake.errors import SavedSessionError
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import SinkState
from longtake.exports.take import TakeSettings, TakeSink
from longtake.pipeline.map_results import MapResult, MapResults, Prepared, Stepped
from longtake.pipeline.mapper import on_cpu
from longtake.server.digests import FILES, PixelDigests, digests_in, read_digested, write_digested
from longtake.server.machine import Step
from longtake.takes.atomic_files import Grown
from longtake.takes.corrections import Corrections
from longtake.takes.depth_files import CONFIDENCE_FILES, DepthFiles
from longtake.takes.fields import JsonObject
from longtake.takes.header import placement_from_json, placement_to_json
from longtake.takes.images import ImageFiles
from longtake.video.frame import VideoFrame
from longtake.video.resize import Resized

_OWED_NAME = "owed.safetensors"
_FRAMES_A_SYNC = 8
"""After so many frames they are brought to the disk, so that a save, for which the worker waits, finds little to do."""
_PATTERNS = (ImageFiles.JPEG.value, DepthFiles(1.0).pattern, CONFIDENCE_FILES)


class OwedResults:
    """Makes of a session's steps what is told and kept of its frames, and holds those that are not final."""

    def __init__(self) -> None:
        self._results = MapResults()

    def take(self, step: Step) -> list[MapResult]:
        """Results that are final now, what earlier frames became, what is known of new ones."""
        stepped = Stepped(taken=_prepared(step), geometry=step.geometry, num_final=step.num_final)
        return list(self._results.take(stepped))

    @property
    def corrections(self) -> Corrections | None:
        """What became of results after they were handed on as final."""
        return self._results.corrections

    def save(self, folder: Path) -> dict[str, Any]:
        """Write pixels into the folder of a save; returns the rest, and the digest of that file, as plain values."""
        owed = self._results.owed
        pixels = {str(number): _seen(prepared).pixels for number, prepared in enumerate(owed)}
        files = write_digested(folder / _OWED_NAME, save(pixels))
        frames = [
            {
                "index": prepared.frame.index,
                "time_s": prepared.timestamp_s,
                "source": placement_to_json(_seen(prepared).placement),
            }
            for prepared in owed
        ]
        return {"results": self._results.state(), "owed": frames, FILES: files}

    @classmethod
    def resume(cls, record: JsonObject, folder: Path, mapping: GeometrySession) -> "OwedResults":
        """As it was when the session was saved."""
        resumed, provisional = cls(), mapping.provisional
        assert provisional is not None
        state = record.object("results").fields
        resumed._results.restore(state, mapping.num_final, on_cpu(provisional))
        frames = record.objects("owed")
        stored = _read_pixels(folder / _OWED_NAME, len(frames), digests_in(record))
        for frame, pixels in zip(frames, stored, strict=True):
            seen = Resized(pixels, placement_from_json(frame.object("source")))
            prepared = _as_prepared(frame.integer("index"), frame.number("time_s"), seen)
            list(resumed._results.take(Stepped(taken=prepared, geometry=None, num_final=mapping.num_final)))
        return resumed


class TakeRecording:
    """The take itself: final frames in the network's pixels, whose digests grow beside it."""

    def __init__(
        self,
        folder: Path,
        digests: Path,
        settings: TakeSettings,
        state: Mapping[str, Any] | None = None,
        kept: Grown | None = None,
    ) -> None:
        """Goes on from the state of a save, and its digests; without one, what an earlier process left is removed."""
        self._folder = folder
        if state is None:
            shutil.rmtree(folder, ignore_errors=True)
        self._sink = TakeSink(folder, settings, state=None if state is None else SinkState(values=state))
        self._digests = PixelDigests(digests, kept)
        self._num_written = 0

    @property
    def digests_grown(self) -> Grown:
        return self._digests.grown

    def write(self, frame: MappedFrame) -> int:
        """One that is final; returns its bytes."""
        self._sink.write(frame)
        self._num_written += 1
        if self._num_written % _FRAMES_A_SYNC == 0:
            self._sink.checkpoint()
        names = [pattern.format(index=frame.index) for pattern in _PATTERNS]
        contents = {name: (self._folder / name).read_bytes() for name in names}
        self._digests.add(contents)
        return sum(map(len, contents.values()))

    def checkpoint(self) -> Mapping[str, Any]:
        """Bring all to the disk; returns the state to go on from."""
        self._digests.sync()
        return self._sink.checkpoint().values

    def close(self) -> None:
        self._digests.close()
        self._sink.close()


def _read_pixels(path: Path, num_frames: int, digests: Mapping[str, str]) -> list[Tensor]:
    content = read_digested(path, digests)
    try:
        stored = load(content)
        return [stored[str(number)] for number in range(num_frames)]
    except (SafetensorError, KeyError) as error:
        raise SavedSessionError(f"The saved session {path} cannot be read ({error}).") from error


def _prepared(step: Step) -> Prepared | None:
    if step.frame is None:
        return None
    assert step.seen is not None
    return _as_prepared(step.index, step.frame.time_s, step.seen)


def _as_prepared(index: int, time_s: float, seen: Resized) -> Prepared:
    """Of the picture only what the network saw is held: a take in its pixels needs no more."""
    image = np.ascontiguousarray(seen.pixels.movedim(0, -1).numpy())
    return Prepared(VideoFrame(index, time_s, image), seen)


def _seen(prepared: Prepared) -> Resized:
    assert prepared.resized is not None
    return prepared.resized
