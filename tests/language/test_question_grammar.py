"""A model of few words: what it knows, and that it says so instead of making answers up."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sighted import made_up

from longtake.errors import CheckpointError, InputError, UnknownWordsError
from longtake.language.load import LanguageModel, load_language
from longtake.language.question_grammar import KNOWN_NAME, QuestionGrammar, known_ids, question_ids
from longtake.language.tokenizer import Tokenizer
from longtake.runtime.answers import Answer, Ending
from longtake.runtime.dialogue import DialogueSession
from longtake.world.question_sampler import QuestionSampler
from training.vocabulary import Vocabulary, known
from training.vqa_model import TINY_VQA, build_vqa, save_vqa

WORDS = Tokenizer(Vocabulary().tokenizer())
KNOWN = known()
FRAMES = torch.randint(0, 256, (4, 3, 112, 168), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(2)
    path = tmp_path_factory.mktemp("hub") / "micro-vqa"
    save_vqa(build_vqa(TINY_VQA), path)
    return path


@pytest.fixture(scope="module")
def language(folder: Path) -> LanguageModel:
    return load_language(folder)


@pytest.fixture
def session(language: LanguageModel) -> Iterator[DialogueSession]:
    session = DialogueSession(language, budget_bytes=4_000_000, answer_tokens=256)
    session.see(FRAMES, [0.0, 0.5, 1.0, 1.5])
    yield session
    session.close()


def test_every_question_of_the_world_is_known_and_keeps_its_ids() -> None:
    quiz = QuestionSampler(np.random.default_rng(1))
    questions = [one for seed in range(60) for one in quiz.ask(made_up(seed, 24), 8)]
    assert len({question.kind for question in questions}) == 7
    for question in questions:
        assert question_ids(question.text, WORDS, KNOWN) == Vocabulary().encode(question.text)
        for choice in question.choices:
            assert known_ids(choice, WORDS, KNOWN) == Vocabulary().encode(choice)


@given(
    spaces=st.lists(st.sampled_from([" ", "  ", "\t", "\n "]), min_size=9, max_size=9),
    end=st.sampled_from(["?", "", " ?", "??", ".", "  ", "?\n"]),
    shout=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_case_spaces_and_the_last_sign_make_no_difference(spaces: list[str], end: str, shout: bool) -> None:
    words = ["which", "came", "first,", "the", "red", "ball", "or", "the", "blue", "chair"]
    written = "".join(word + space for word, space in zip(words, [*spaces, ""], strict=True)) + end
    plain = Vocabulary().encode("which came first , the red ball or the blue chair ?")
    assert question_ids(written.upper() if shout else written, WORDS, KNOWN) == plain


def test_examples_are_known_and_the_refusal_has_all_that_can_be_asked() -> None:
    with pytest.raises(UnknownWordsError) as refused:
        question_ids("Have you seen a purple Dragon, or an emu?", WORDS, KNOWN)
    said = str(refused.value)
    assert said.startswith("I only know about walks through longtake's own procedural houses, and 'Dragon', 'emu' are")
    for example in KNOWN.examples:
        question_ids(example, WORDS, KNOWN)
        assert example in said
    for words in ("things: box, ball,", "colours: red, orange,", "rooms, by the colour of their walls: red,"):
        assert words in said
    assert len(KNOWN.forms) == len(KNOWN.examples) == 8


@pytest.mark.parametrize(
    "question",
    [
        "where is the red ball?",
        "have you seen a ball?",
        "red red red",
        "how many red balls have you seen?",
        "have you seen a red ball? now",
        "?",
    ],
)
def test_known_words_that_make_no_known_question_are_refused_too(question: str) -> None:
    with pytest.raises(UnknownWordsError, match="is no question that I was taught"):
        question_ids(question, WORDS, KNOWN)


@pytest.mark.parametrize(
    ("question", "near"),
    [
        ("Where is the blue chair", "Where is the red ball now?"),
        ("have you seen a ball?", "Have you seen a red ball?"),
        ("How many purple cones have you seen?", "How many balls have you seen?"),
        ("what color was the lamp", "What colour was the ball?"),
        ("Which came first, the ball or the chair?", "Which came first, the red ball or the blue chair?"),
        ("Which room are you in?", "Which room are you in now?"),
        ("What is the meaning of life?", None),
        ("red red red", None),
        ("?", None),
    ],
)
def test_a_question_much_like_a_known_form_is_refused_with_its_example(question: str, near: str | None) -> None:
    assert KNOWN.nearest(question) == near
    with pytest.raises(UnknownWordsError) as refused:
        question_ids(question, WORDS, KNOWN)
    hint = "" if near is None else f" (did you mean '{near}')"
    assert refused.value.why.endswith(f" of mine{hint}.") or refused.value.why.endswith(f" taught{hint}.")
    start, end = str(refused.value).split(f", and {refused.value.why[:-1]}; ")
    assert refused.value.known == f"{start}; {end}"


def test_a_choice_is_refused_without_the_example_of_a_question() -> None:
    with pytest.raises(UnknownWordsError) as refused:
        known_ids("where is the red ball hidden now", WORDS, KNOWN)
    assert refused.value.why == "'hidden' is no word of mine."


def test_without_a_list_of_questions_unknown_words_alone_are_refused() -> None:
    assert question_ids("red red", WORDS, None) == Vocabulary().encode("red red")
    with pytest.raises(UnknownWordsError, match=r"I only know about .* 'dragon' is no word of mine; .*, ball,"):
        question_ids("red dragon", WORDS, None)
    with pytest.raises(InputError, match="half a character"):
        question_ids("red \ud800", WORDS, KNOWN)


def test_the_folder_of_a_model_says_what_it_knows(folder: Path, language: LanguageModel) -> None:
    assert language.known == QuestionGrammar.from_folder(folder) == KNOWN
    assert QuestionGrammar.from_folder(folder.parent) is None


@pytest.mark.parametrize(
    "stated",
    [
        "[]",
        "{}",
        "?",
        '{"about": "x", "questions": [1], "places": {}, "lists": {}}',
        '{"about": "x", "questions": [{"form": "{thing} ?", "example": ""}], "places": {}, "lists": {}}',
        '{"about": "x", "questions": [{"form": "{thing ?", "example": ""}], "places": {"thing": []}, "lists": {}}',
        '{"about": "x", "questions": [], "places": {"thing": 3}, "lists": {}}',
    ],
)
def test_a_damaged_list_is_one_sentence(stated: str, tmp_path: Path) -> None:
    (tmp_path / KNOWN_NAME).write_text(stated)
    with pytest.raises(CheckpointError, match=r"known\.json.*fetch it again"):
        QuestionGrammar.from_folder(tmp_path)


def test_a_session_answers_a_strange_question_with_what_it_knows_and_nothing_else_happens(
    session: DialogueSession,
) -> None:
    before = session.info
    *pieces, answer = session.ask_stream("What is the meaning of life?", remember=True)
    assert isinstance(answer, Answer)
    assert pieces == [answer.text]
    assert answer.text.startswith("I only know about")
    assert (answer.ids, answer.evidence, answer.ending) == ((), (), Ending.REFUSED)
    assert answer.seen_until_s == 1.5
    assert answer.timing.total_s >= 0
    assert answer.refusal is not None
    assert answer.refusal.why == "'meaning', 'of', 'life' are no words of mine."
    assert session.info == before


def test_of_questions_asked_together_a_strange_one_is_answered_in_its_place(session: DialogueSession) -> None:
    questions = ["What is that?", "have you seen a red ball?", "is it dark?"]
    pieces = list(session.ask_together_stream(questions))
    answers = [piece for piece in pieces if isinstance(piece, Answer)]
    assert [answer.ending is Ending.REFUSED for answer in answers] == [True, False, True]
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == answers[1].text
    assert answers[1].refusal is None
    assert [answer.text for answer in answers] == [answer.text for answer in session.ask_together(questions)]


def test_a_session_hears_the_same_question_however_it_is_written(session: DialogueSession) -> None:
    plain = session.ask("have you seen a red ball ?")
    assert session.ask("  HAVE you  seen a red ball").ids == plain.ids
    assert plain.ending is not Ending.REFUSED


def test_choices_outside_its_words_are_refused_as_an_error(session: DialogueSession) -> None:
    assert len(session.ask_choice("have you seen a red ball?", ["yes", "no"])) == 2
    for question, choices in (
        ("have you seen a red ball?", ["yes", "perhaps"]),
        ("is it dark?", ["yes", "no"]),
    ):
        with pytest.raises(UnknownWordsError, match="I only know about"):
            session.ask_choice(question, choices)
    with pytest.raises(UnknownWordsError, match="'B' is no word of mine"):
        session.ask_letter("have you seen a red ball?", ["yes", "no"])


def test_a_model_that_spells_words_out_can_be_asked_anything(language: LanguageModel) -> None:
    alphabet = {letter: at for at, letter in enumerate(tokenizers.pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    words = Tokenizer(tokenizer)
    spelling = replace(language, tokenizer=words, known=None)
    assert words.unknown_in("a dragon") == ()
    assert words.decode(spelling.question_ids("A dragon,  or what")) == "A dragon,  or what"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / KNOWN_NAME).write_text(json.dumps(KNOWN.to_json()))
    assert QuestionGrammar.from_folder(tmp_path) == KNOWN
