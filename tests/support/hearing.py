"""What a language model says before a word of it is chosen."""

from dataclasses import replace

import pytest
from torch import Tensor

from longtake.language.sampling import TextSampling
from longtake.runtime.dialogue import DialogueSession


def first_logits(session: DialogueSession, question: str, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """What the network says right after the question."""
    heard: list[Tensor] = []

    def choose(_: TextSampling, logits: Tensor, *__: object) -> int:
        heard.append(logits)
        return int(logits.argmax())

    with monkeypatch.context() as patch:
        patch.setattr(TextSampling, "choose", choose)
        session.ask(question, TextSampling(max_new_tokens=1))
    return heard[0]


def limit_positions(session: DialogueSession, position_range: int) -> None:
    """Move clips back before they leave this range instead of the model's own."""
    session._memory._setup = replace(session._memory.setup, position_range=position_range)
