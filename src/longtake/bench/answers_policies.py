"""Memory policies of a session by name, with a budget each."""

import re
from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.language.formats import open_clip
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.language.retaining import KeepUntilFull, RecentFrames, Retaining, ThinnedPast
from longtake.memory.budget import Budget, Needs
from longtake.memory.retention import KeepAll
from longtake.runtime.dialogue import SYSTEM, DialogueSession

KEEP_ALL = "keep-all"
POLICIES = (KEEP_ALL, "window", "thinned", "novel", "recent-N", "anew-N")
_ANSWER_TOKENS = 128
"""Room for a question, a frame without a partner, and an answer."""
_EXPECTED = f"Expected a memory policy of {', '.join(POLICIES)}, N an even number of frames from 4 on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One way to watch and to forget."""

    policy: str
    memory: str | None
    """The budget in words; none where the policy alone says what stays."""

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

    def num_frames(self) -> int | None:
        """For how many frames there is room, where that is said in frames."""
        if self.memory is not None:
            return Budget.parse(self.memory).num_frames
        return None if self.keeps_all else _last_frames(self.policy)


def watch_named(policy: str, memory: str) -> Watch:
    """A policy with the budget that it needs, if any."""
    if policy == KEEP_ALL or re.fullmatch(r"(recent|anew)-\d+", policy):
        if policy != KEEP_ALL:
            _last_frames(policy)
        return Watch(policy=policy, memory=None)
    if policy not in POLICIES or policy.endswith("-N"):
        raise SettingError(f"{_EXPECTED}, but got '{policy}'.")
    Budget.parse(memory)
    return Watch(policy=policy, memory=memory)


def open_watch(language: LanguageModel, watch: Watch, *, num_frames: int, size: tuple[int, int]) -> DialogueSession:
    """A session that watches up to so many frames of this size in this way."""
    fit = language.picture_format.fit(*size)
    tokens, pair = fit.rows * fit.columns, language.picture_format.temporal_patch
    opening = len(open_clip(language.special_ids, language.words.encode(SYSTEM)))
    needs = Needs(streams={TEXT: (language.network.layout(), KeepAll())}, first_clip=1, reserve=_ANSWER_TOKENS)
    budget = Budget(num_frames=num_frames + pair) if watch.memory is None else Budget.parse(watch.memory)
    if budget.num_bytes is not None:
        num_bytes, num_grids = budget.num_bytes, _num_grids(needs, budget.num_bytes, opening, tokens)
    else:
        assert budget.num_frames is not None
        num_grids = budget.num_frames // pair
        num_bytes = needs.num_bytes(opening + num_grids * tokens - 1)
    if num_grids < 2:
        raise SettingError(f"Expected memory for {2 * pair} frames at least, but '{watch.memory}' holds {num_grids}.")
    return DialogueSession(
        language, budget_bytes=num_bytes, retaining=_rule(watch.policy, num_grids, pair), answer_tokens=_ANSWER_TOKENS
    )


def _num_grids(needs: Needs, num_bytes: int, opening: int, tokens: int) -> int:
    """How many grids of so many tokens find room beside what opens the clip."""
    places = needs.plan(num_bytes)[TEXT].num_slots - _ANSWER_TOKENS
    return max(0, places - opening) // tokens


def _rule(policy: str, num_grids: int, pair: int) -> Retaining:
    match policy:
        case "window":
            return RecentFrames()
        case "thinned" | "novel":  # half for the newest, half for all that was before
            return ThinnedPast(recent=num_grids // 2, by_novelty=policy == "novel")
        case _ if policy.startswith("recent-"):
            return RecentFrames(most=_last_frames(policy) // pair - 1)  # beside the grid that comes
        case _:
            return KeepUntilFull()


def _last_frames(policy: str) -> int:
    count = int(policy.partition("-")[2])
    if count < 4 or count % 2:
        raise SettingError(f"{_EXPECTED}, but got '{policy}'.")
    return count
