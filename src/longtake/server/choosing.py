"""How likely each of several answers is: all scored by the worker in one step, which leaves no trace in the session."""

import asyncio
import secrets
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longtake.runtime.answers import Choice
from longtake.server.problems import RequestError
from longtake.server.session import ServedSession
from longtake.server.watchers import Watcher


@dataclass(frozen=True, slots=True)
class _Choosing:
    """A question with its choices, as an inquiry."""

    question: str
    choices: Sequence[str]

    @property
    def num_bytes(self) -> int:
        return 0

    def steps(self, watcher: Watcher) -> Generator[None, None, list[Choice]]:
        dialogue = watcher.dialogue
        assert dialogue is not None, "a session without a language model refuses the question"
        yield
        return dialogue.ask_choice(self.question, self.choices)


async def chosen(session: ServedSession, question: str, choices: Sequence[str]) -> dict[str, Any]:
    """The likeliest choice by the mean over its tokens, and what all of them are given."""
    if not session.record.num_frames:
        raise RequestError("no_pictures", "This session has seen nothing yet; ask it when it has.", status=409)
    id = f"choose-{secrets.token_hex(8)}"
    scored: list[Choice] = await asyncio.wrap_future(session.inquire(id, question, None, _Choosing(question, choices)))
    best = max(scored, key=lambda choice: choice.mean_log_likelihood)
    return {"text": best.text, "choices": [asdict(choice) for choice in scored]}
