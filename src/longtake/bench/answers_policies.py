"""Memory policies of a session by name, with a budget each."""

import re
from dataclasses import dataclass

from longtake.attention.backend import Backend
from longtake.errors import SettingError
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.language.qwen2_5_vl import open_clip
from longtake.memory.budget import Budget, MemoryRequirements
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import SegmentPolicy
from longtake.memory.registry import segment_policy_named
from longtake.runtime.dialogue import SYSTEM, DialogueSession

KEEP_ALL = "keep-all"
_WINDOW = "window"
_SAMPLED = {"thinned": Thinned, "novel": Novel}
POLICIES = (KEEP_ALL, _WINDOW, *_SAMPLED, "recent-N", "anew-N")
_WORDS = 96
"""Tokens of a question and its answer, beside those of a frame without a partner."""
_FEWEST = 4
"""Two grids of two frames."""
_EXPECTED = f"Expected a memory policy of {', '.join(POLICIES)}, N an even number of frames from {_FEWEST} on"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVariant:
    """A memory policy with its budget."""

    policy: str
    memory: str | None
    """The budget in words; none where the policy needs none."""

    @property
    def name(self) -> str:
        return self.policy if self.memory is None else f"{self.policy}, {self.memory}"

    @property
    def keeps_all(self) -> bool:
        return self.policy == KEEP_ALL

    @property
    def num_anew(self) -> int | None:
        """How many frames, the last ones, are encoded anew for every moment; none where there is a memory."""
        return _last_frames(self.policy) if self.policy.startswith("anew-") else None

    @property
    def num_frames(self) -> int | None:
        """How many are remembered; none for all."""
        if self.memory is not None:
            return _frames_of(self.memory)
        return None if self.keeps_all else _last_frames(self.policy)


def variant_named(policy: str, memory: str) -> MemoryVariant:
    """A policy with the budget that it needs, if any."""
    if policy == KEEP_ALL or re.fullmatch(r"(recent|anew)-\d+", policy):
        if policy != KEEP_ALL:
            _last_frames(policy)
        return MemoryVariant(policy=policy, memory=None)
    if policy not in POLICIES or policy.endswith("-N"):
        raise SettingError(f"{_EXPECTED}, but got '{policy}'.")
    _frames_of(memory)
    return MemoryVariant(policy=policy, memory=memory)


def open_variant(
    language: LanguageModel,
    variant: MemoryVariant,
    *,
    num_frames: int,
    size: tuple[int, int],
    backend: Backend | None = None,
) -> DialogueSession:
    """A session of this variant, for up to so many frames of this size."""
    fit = language.picture_format.fit(*size)
    tokens, pair = fit.rows * fit.columns, language.picture_format.temporal_patch
    opening = len(open_clip(language.special_ids, language.required_tokenizer.encode(SYSTEM)))
    requirements = MemoryRequirements(
        streams={TEXT: (language.network.layout(), KeepAll())}, first_clip=1, reserve=tokens + _WORDS
    )
    num_grids = (variant.num_frames or num_frames) // pair
    return DialogueSession(
        language,
        budget_bytes=requirements.num_bytes(opening + num_grids * tokens),
        retaining=_rule(variant.policy, num_grids),
        answer_tokens=tokens + _WORDS,
        backend=backend,
    )


def _rule(policy: str, num_grids: int) -> SegmentPolicy:
    if policy in _SAMPLED:  # half for the newest, half for all that was before
        return _SAMPLED[policy](recent=num_grids // 2)
    if policy == _WINDOW:
        return segment_policy_named(policy)
    if policy.startswith("recent-"):
        return Window(anchors=0, window=num_grids - 1)  # beside the one that comes
    return KeepAll()


def _last_frames(policy: str) -> int:
    count = int(policy.partition("-")[2])
    if count < _FEWEST or count % 2:
        raise SettingError(f"{_EXPECTED}, but got '{policy}'.")
    return count


def _frames_of(memory: str) -> int:
    count = Budget.parse(memory).num_frames
    if count is None or count < _FEWEST or count % 2:
        raise SettingError(
            f"Expected a memory of an even number of frames from {_FEWEST} on, such as '16 frames', but got '{memory}'."
        )
    return count
