"""Sessions are forked or saved, never copied."""

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from smallest import smallest_model

from longtake import DialogueSession, GeometrySession, LiveSession
from longtake.errors import InputError
from longtake.language.load import LanguageModel


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_of_a_session_is_refused_in_one_sentence(
    language: LanguageModel, duplicate: Callable[[object], object]
) -> None:
    mapping = GeometrySession.from_pretrained(smallest_model(), size=56)
    mapping.step(np.zeros((42, 56, 3), np.uint8))
    dialogue = DialogueSession.from_pretrained(language, memory="20MB")
    for session in (mapping, dialogue, LiveSession(mapping, dialogue)):
        name = type(session).__name__
        with pytest.raises(InputError, match=f"^A {name} cannot be copied or pickled, .*; fork it, or save it.$"):
            duplicate(session)
    assert mapping.fork().info == mapping.info
