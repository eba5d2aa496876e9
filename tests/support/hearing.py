"""What a language model says before a word of it is chosen."""

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
