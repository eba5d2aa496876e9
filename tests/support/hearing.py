"""What a language model says before a word of it is chosen."""

import pytest
from torch import Tensor

from longtake.language.sampling import Sampling
from longtake.runtime.dialogue import DialogueSession


def first_logits(session: DialogueSession, question: str, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """What the network says right after the question."""
    heard: list[Tensor] = []

    def choose(_: Sampling, logits: Tensor, *__: object) -> int:
        heard.append(logits)
        return int(logits.argmax())

    with monkeypatch.context() as patch:
        patch.setattr(Sampling, "choose", choose)
        session.ask(question, Sampling(max_new_tokens=1))
    return heard[0]
