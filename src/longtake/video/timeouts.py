"""Timeouts of cameras and network streams, and the pauses before they are opened again."""

from dataclasses import dataclass

from longtake.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimeouts:
    """How long to wait for a stream, and how to reconnect."""

    open_timeout_s: float = 5.0
    """Without an answer for so long, an address that never gave one is given up."""
    read_timeout_s: float = 10.0
    first_pause_s: float = 0.5
    """Before the first new try; every further one waits twice as long, until there is a picture."""
    longest_pause_s: float = 8.0
    max_silence_s: float = 60.0
    """Without a picture for so long, the stream is given up."""

    def __post_init__(self) -> None:
        times_s = (self.open_timeout_s, self.read_timeout_s, self.first_pause_s, self.longest_pause_s)
        if not all(time_s > 0 for time_s in (*times_s, self.max_silence_s)):
            raise SettingError(f"Expected times greater than 0 s to wait for a stream, but got {self}.")


DEFAULT_TIMEOUTS = StreamTimeouts()
