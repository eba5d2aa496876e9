"""How many slots a memory needs, in closed form, and whether a budget in bytes can hold them."""

import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from longtake.errors import BudgetError, SettingError
from longtake.memory.policy import StreamPolicy
from longtake.memory.tokens import StreamLayout

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_LONGEST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One stream of a memory: what a slot holds, what is remembered, how many slots there are."""

    layout: StreamLayout
    policy: StreamPolicy
    num_slots: int
    """For tokens of all layers at once, or of single layers where each forgets on its own."""

    @property
    def num_bytes(self) -> int:
        """Keys and values; where each layer forgets on its own, all that is kept about them too."""
        return self.num_slots * self.policy.bytes_per_slot(self.layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequirements:
    """What a memory is asked to hold; clips and the reserve for forks are counted in frames."""

    streams: Mapping[str, tuple[StreamLayout, StreamPolicy]]
    first_clip: int
    reserve: int = 0

    def num_slots(self, stream: str, num_kept: int) -> int:
        """Slots for the fullest moment: all that stays and one frame on top, or the first clip if that is larger."""
        layout, policy = self.streams[stream]
        frame = policy.slots_per_frame(layout)
        most = policy.most_slots(layout, num_kept=num_kept, clip_frames=self.first_clip)
        return max(most + frame, self.first_clip * frame) + self.reserve * frame

    def num_bytes(self, num_kept: int) -> int:
        """Bytes of all streams for a sequence of at most `num_kept` kept frames."""
        return sum(
            self.num_slots(name, num_kept) * policy.bytes_per_slot(layout)
            for name, (layout, policy) in self.streams.items()
        )

    @property
    def full_after(self) -> int | None:
        """Kept frames after which nothing grows any more, or None where a policy never forgets."""
        counts = [policy.full_after for _, policy in self.streams.values()]
        return None if None in counts else max((count for count in counts if count is not None), default=0)

    def plan(self, budget_bytes: int | None = None) -> dict[str, StreamPlan]:
        """Size every stream; a memory that grows for ever gets as many frames as the budget holds."""
        num_kept = self._longest_sequence(budget_bytes)
        return {
            name: StreamPlan(layout=layout, policy=policy, num_slots=self.num_slots(name, num_kept))
            for name, (layout, policy) in self.streams.items()
        }

    def _longest_sequence(self, budget_bytes: int | None) -> int:
        full_after = self.full_after
        if budget_bytes is None:
            if full_after is None:
                raise SettingError("A policy that never forgets needs a budget; give one, such as 4GB.")
            return full_after
        least = self.num_bytes(self.first_clip if full_after is None else full_after)
        if least > budget_bytes:
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold this memory; "
                f"the smallest that works is {format_bytes(least)}.",
                least_bytes=least,
            )
        if full_after is not None:
            return full_after
        return bisect_right(range(_LONGEST), budget_bytes, key=self.num_bytes) - 1


def require_room(num_bytes: int, device: torch.device) -> None:
    """Refuse a memory that the device cannot hold, before it is allocated."""
    room = _room(device)
    if room is not None and num_bytes > room:
        raise BudgetError(
            f"This memory takes {format_bytes(num_bytes)}, but {device} has room for {format_bytes(room)}; "
            "give it a smaller budget, window or history."
        )


def _room(device: torch.device) -> int | None:
    """Free bytes of a GPU, physical bytes of the host, None where nobody can tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How large a memory may be: in bytes, or in whole frames."""

    num_bytes: int | None = None
    num_frames: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """A size such as `4GB`, `512MiB` or `1000000`, or `8 frames`."""
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
        if match is not None and match[1].isdecimal() and int(match[1]) and match[2].lower() in ("frame", "frames"):
            return cls(num_frames=int(match[1]))
        if match is None or match[2].lower() not in _UNITS:
            raise SettingError(f"Expected a memory such as 4GB, 512MiB, 1000000 or 8 frames, but got '{text}'.")
        return cls(num_bytes=int(float(match[1]) * _UNITS[match[2].lower()]))


def format_bytes(count: int) -> str:
    """A size for people, and to the byte."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit} ({count} bytes)"
    return f"{count} bytes"
