"""Overlapping windows: when one ends, where the next begins, and which frames' results are final.

frames   0 ─────────────── L                    L = frames a window covers
         [      window 0   ]
                    [ overlap ] window 1   ]
                    step = L - overlap          results of the overlap come from the later window
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.runtime.keyframes import KeyframeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """`size` counts kept frames, the scale block included. Overlap is given in frames or keyframes, else it is the
    scale block's length."""

    size: int
    overlap_frames: int | None = None
    overlap_keyframes: int | None = None

    def __post_init__(self) -> None:
        given = (self.size, self.overlap_frames, self.overlap_keyframes)
        if any(number is not None and number < 1 for number in given):
            raise SettingError(f"Expected positive window size and overlap, but got {given}.")
        if self.overlap_frames is not None and self.overlap_keyframes is not None:
            raise SettingError("Expected an overlap in frames or in keyframes, but got both; give one.")


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Windows for a given scale block and keyframe rule, checked so that no frame is lost."""

    size: int
    num_scale_frames: int
    overlap: int
    length: int | None
    """Frames a window covers, or None where keyframes are judged by flow and only kept frames count."""

    @classmethod
    def of(cls, windows: Windows, num_scale_frames: int, keyframes: KeyframeRule) -> "WindowRule":
        if windows.size <= num_scale_frames:
            raise SettingError(
                f"A window of {windows.size} kept frames has no room beside its {num_scale_frames} scale frames; "
                f"give at least {num_scale_frames + 1}."
            )
        per_keyframe = keyframes.interval or 1
        overlap = num_scale_frames
        if windows.overlap_frames is not None:
            overlap = windows.overlap_frames
        if windows.overlap_keyframes is not None:
            overlap = max(num_scale_frames, windows.overlap_keyframes * per_keyframe)
        shortest = num_scale_frames + (windows.size - num_scale_frames) * per_keyframe
        if overlap >= shortest:
            raise SettingError(
                f"An overlap of {overlap} frames leaves nothing of a window that may cover only {shortest}, and frames "
                f"would be lost; give an overlap of at most {shortest - 1}, or larger windows."
            )
        return cls(windows.size, num_scale_frames, overlap, None if keyframes.interval is None else shortest)

    def is_full(self, *, num_frames: int, num_kept: int) -> bool:
        """Whether a window ends here, after so many frames, of which so many were kept."""
        return num_kept >= self.size if self.length is None else num_frames >= self.length

    def num_shared(self, num_frames: int) -> int:
        """How many of a window's last frames the next one begins with; the scale frames are never among them."""
        return min(self.overlap, num_frames - self.num_scale_frames) if self.length is None else self.overlap

    def num_final(self, num_frames: int) -> int:
        """How many results of a window, counted from its start, no later window can replace."""
        if self.length is None:
            return min(num_frames, max(num_frames - self.overlap, self.num_scale_frames))
        return min(num_frames, self.length - self.overlap)

    def spans(self, num_frames: int) -> Iterator[tuple[int, int]]:
        """Start and end of each window of a video, where keyframes come at a fixed interval."""
        assert self.length is not None
        start = 0
        while start + self.length < num_frames:
            yield start, start + self.length
            start += self.length - self.overlap
        yield start, num_frames
