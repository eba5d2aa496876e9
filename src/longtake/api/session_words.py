"""A memory in the words of `map`."""

from longtake.errors import SettingError
from longtake.memory.budget import Budget


def memory_bytes(memory: str | int) -> int:
    """A budget that must be in bytes, because frames vary in size."""
    num_bytes = Budget.parse(str(memory)).num_bytes
    if num_bytes is None:
        raise SettingError(f"Expected memory in bytes such as 512MB, but got '{memory}'; how large a frame is varies.")
    return num_bytes
