"""Words of micro-vqa: all that the world asks and answers, by two ways to the same ids."""

import numpy as np
import pytest
from sighted import made_up

from longtake.language.tokenizer import Tokenizer
from longtake.runtime.dialogue import SYSTEM
from longtake.world.question import vocabulary
from longtake.world.question_sampler import QuestionSampler
from training.vocabulary import UNKNOWN, Vocabulary


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer(Vocabulary().tokenizer())


def test_no_word_of_a_thousand_questions_is_unknown(words: Tokenizer) -> None:
    quiz, known = QuestionSampler(np.random.default_rng(0)), Vocabulary()
    questions = [one for seed in range(150) for one in quiz.ask(made_up(seed, 24), 8)]
    assert len(questions) >= 1000
    unknown = known.id_of(UNKNOWN)
    for text in {text for one in questions for text in (one.text, one.answer)}:
        ids = words.encode(text)
        assert ids == known.encode(text)
        assert unknown not in ids
        assert words.decode(ids) == known.decode(list(ids)) == text


def test_every_word_of_the_world_has_an_id_of_its_own(words: Tokenizer) -> None:
    known = Vocabulary()
    ids = [words.encode(word) for word in vocabulary()]
    assert all(len(one) == 1 for one in ids)
    assert len({*ids}) == len(vocabulary())
    assert words.size == len(known)


def test_people_write_as_they_like(words: Tokenizer) -> None:
    plain = words.encode("which came first , the red box or the blue chair ?")
    assert words.encode("Which came first, the RED box or the blue chair?") == plain
    assert words.encode(SYSTEM) == Vocabulary().system
    assert UNKNOWN in [Vocabulary().words[at] for at in words.encode("have you seen a dragon?")]


def test_roles_and_signs_are_where_the_formats_look_for_them(words: Tokenizer) -> None:
    special = Vocabulary().special_ids
    assert words.encode("\n") == (special.newline,)
    assert words.encode("assistant") == special.assistant
    for name in ("im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad"):
        assert words.special_id(f"<|{name}|>") == Vocabulary().id_of(f"<|{name}|>")
    with pytest.raises(KeyError):
        Vocabulary().encode("dragon")
