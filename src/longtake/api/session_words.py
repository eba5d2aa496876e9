"""How a video is watched, in the words of `map`: memory, policy, keyframes, windows, alignment and size."""

from dataclasses import replace

from longtake.errors import SettingError
from longtake.memory.budget import Budget
from longtake.runtime.alignment import Alignment
from longtake.runtime.build import SessionSettings, parse_keyframes, parse_windows
from longtake.runtime.rules import rule_named


def session_settings(
    usual: SessionSettings,
    *,
    memory: str | int | None = None,
    policy: str | None = None,
    keyframes: str | None = None,
    windows: str | None = None,
    align: str | None = None,
    size: int | None = None,
) -> SessionSettings:
    """The usual settings but for what was said."""
    return replace(
        usual,
        image_size=usual.image_size if size is None else size,
        retention=usual.retention if policy is None else rule_named(policy),
        keyframes=usual.keyframes if keyframes is None else parse_keyframes(keyframes),
        windows=usual.windows if windows is None else parse_windows(windows),
        alignment=usual.alignment if align is None else Alignment.named(align),
        budget=None if memory is None else Budget.parse(str(memory)),
    )


def memory_bytes(memory: str | int) -> int:
    """A budget that must be in bytes, because frames vary in size."""
    num_bytes = Budget.parse(str(memory)).num_bytes
    if num_bytes is None:
        raise SettingError(f"Expected memory in bytes such as 512MB, but got '{memory}'; how large a frame is varies.")
    return num_bytes
