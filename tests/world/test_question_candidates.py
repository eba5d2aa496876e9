"""Every question has one answer, however faint sightings are read; what is doubtful is not asked."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import Float, Int
from slow_answers import answer_of

from longtake.world.question import NAMES, Question, QuestionKind
from longtake.world.question_candidates import candidates
from longtake.world.things import Colour, Kind, Sightings, Thing
from longtake.world.visibility import clear_pixels

MakeSightings = Callable[..., Sightings]
CLEAR, FAINT = 5, 4
"""Pixels of an image of a thousand."""

BALL = Thing(Colour.RED, Kind.BALL, 0)
CHAIR = Thing(Colour.BLUE, Kind.CHAIR, 1)
OTHER_CHAIR = Thing(Colour.WHITE, Kind.CHAIR, 1)


def walk_of(
    things: dict[Thing, list[int]],
    *,
    fps: float = 1.0,
    column: float = 0.5,
    room: list[int] | None = None,
    num_frames: int = 4,
) -> Sightings:
    """A walk by the pixels of each thing, frame by frame, in a house of a green, a cyan and a purple room."""
    pixels = np.array(list(things.values()), dtype=int).T if things else np.zeros((num_frames, 0), dtype=int)
    return Sightings(
        things=tuple(things),
        rooms=(Colour.GREEN, Colour.CYAN, Colour.PURPLE),
        timestamp_s=np.arange(len(pixels)) / fps,
        room=np.array([0] * len(pixels) if room is None else room, dtype=int),
        pixels=pixels,
        column=np.where(pixels > 0, column, np.nan),
        image_pixels=1000,
    )


def asked(sightings: Sightings, kind: QuestionKind) -> dict[str, str]:
    """Answers by text, of all draws."""
    drawn = (candidates(sightings, np.random.default_rng(seed))[kind] for seed in range(12))
    return {question.text: question.answer for questions in drawn for question in questions}


def all_candidates(sightings: Sightings, seed: int) -> Iterator[Question]:
    for questions in candidates(sightings, np.random.default_rng(seed)).values():
        yield from questions


def read_at_random(sightings: Sightings, rng: np.random.Generator) -> Int[np.ndarray, "frames things"]:
    """Each faint sighting for itself not noticed at all, or as if it were clear."""
    clear = clear_pixels(sightings)
    faint = (sightings.pixels > 0) & (sightings.pixels < clear)
    return np.where(faint, clear * rng.integers(2, size=faint.shape), sightings.pixels)


def with_faint_thing(sightings: Sightings, seed: int) -> Sightings:
    """One more thing of a name that is free, barely visible in some frames."""
    rng = np.random.default_rng(seed)
    taken = {thing.name for thing in sightings.things}
    colour, kind = str(rng.choice([name for name in NAMES if name not in taken])).split()
    thing = Thing(Colour(colour), Kind(kind), int(rng.integers(len(sightings.rooms))))
    pixels = rng.integers(clear_pixels(sightings), size=(len(sightings), 1)) * rng.integers(2, size=(len(sightings), 1))
    column: Float[np.ndarray, "frames 1"] = np.where(pixels > 0, rng.random(pixels.shape), np.nan)
    return replace(
        sightings,
        things=(*sightings.things, thing),
        pixels=np.concatenate([sightings.pixels, pixels], axis=1),
        column=np.concatenate([sightings.column, column], axis=1),
    )


@pytest.fixture(params=range(12))
def sightings(request: pytest.FixtureRequest, synthetic_sightings: MakeSightings) -> Sightings:
    return synthetic_sightings(request.param, num_frames=(16, 40, 150, 600)[request.param % 4])


def test_answer_is_the_same_wherever_the_line_is_drawn(sightings: Sightings) -> None:
    clear = clear_pixels(sightings)
    for question in all_candidates(sightings, seed=1):
        assert {answer_of(question, sightings, line) for line in (1, clear // 2, clear)} == {question.answer}
        assert question.answer in question.choices
        assert len(set(question.choices)) == len(question.choices) > 1


def test_answer_is_the_same_however_each_faint_sighting_is_read(sightings: Sightings) -> None:
    rng = np.random.default_rng(2)
    for _ in range(2):
        read = replace(sightings, pixels=read_at_random(sightings, rng))
        for question in all_candidates(sightings, seed=2):
            assert answer_of(question, read, clear_pixels(sightings)) == question.answer


def test_adding_a_barely_visible_thing_changes_no_answer(sightings: Sightings) -> None:
    clear = clear_pixels(sightings)
    for seed in range(2):
        fuller = with_faint_thing(sightings, seed)
        for question in all_candidates(sightings, seed):
            assert answer_of(question, fuller, clear) == question.answer


def test_questions_never_depend_on_a_barely_visible_thing(sightings: Sightings) -> None:
    for seed in range(2):
        fuller = with_faint_thing(sightings, seed)
        for question in all_candidates(fuller, seed):
            assert fuller.things[-1].name not in question.text
            assert answer_of(question, sightings, 1) == answer_of(question, fuller, 1) == question.answer


def test_hiding_a_few_pixels_of_each_thing_changes_no_answer(sightings: Sightings) -> None:
    rng, half = np.random.default_rng(3), clear_pixels(sightings) // 2
    hidden = rng.integers(half, size=sightings.pixels.shape)
    occluded = replace(sightings, pixels=np.maximum(sightings.pixels - hidden, 0))
    for question in all_candidates(sightings, seed=3):
        assert answer_of(question, occluded, half) == question.answer


def test_evidence_alone_gives_the_answer(sightings: Sightings) -> None:
    """With every other frame dark, the answer is the same; of nothing seen there is no evidence."""
    clear = clear_pixels(sightings)
    for question in all_candidates(sightings, seed=4):
        dark = np.zeros_like(sightings.pixels)
        dark[list(question.evidence)] = sightings.pixels[list(question.evidence)]
        assert answer_of(question, replace(sightings, pixels=dark), clear) == question.answer
        assert list(question.evidence) == sorted(question.evidence)
        assert (question.evidence == ()) == (question.answer in ("no", "0") and question.kind is not QuestionKind.WHEN)


def test_questions_are_asked_at_the_newest_frame(sightings: Sightings) -> None:
    for question in all_candidates(sightings, seed=5):
        assert question.frame == len(sightings) - 1
        assert question.timestamp_s == sightings.timestamp_s[-1]


def test_seen_is_asked_of_any_name_but_the_doubtful() -> None:
    walk, answers = walk_of({BALL: [0, CLEAR, 0, 0], CHAIR: [0, FAINT, 1, 0]}), {}
    for seed in range(500):
        questions = candidates(walk, np.random.default_rng(seed))[QuestionKind.SEEN]
        assert sorted(question.answer for question in questions) == ["no", "yes"]
        answers |= {question.text: question.answer for question in questions}
    assert len(answers) == len(NAMES) - 1
    assert answers["have you seen a red ball ?"] == "yes"
    assert answers["have you seen an orange lamp ?"] == "no"
    assert "have you seen a blue chair ?" not in answers
    assert list(answers.values()).count("yes") == 1


def test_colour_is_asked_of_the_only_one_of_its_kind() -> None:
    alone = walk_of({BALL: [0, CLEAR, 0, 0], CHAIR: [0, CLEAR, 0, 0], OTHER_CHAIR: [0, 0, 0, 0]})
    assert asked(alone, QuestionKind.COLOUR) == {
        "what colour was the ball ?": "red",
        "what colour was the chair ?": "blue",
    }
    for pixels in (1, FAINT, CLEAR):
        doubtful = walk_of({CHAIR: [0, CLEAR, 0, 0], OTHER_CHAIR: [0, 0, pixels, 0]})
        assert asked(doubtful, QuestionKind.COLOUR) == {}


def test_count_is_asked_up_to_five_and_without_doubt() -> None:
    boxes = [Thing(colour, Kind.BOX, 0) for colour in Colour]
    five = walk_of({box: [0, CLEAR, 0, 0] for box in boxes[:5]} | {CHAIR: [0, 0, 1, 0]})
    answers = asked(five, QuestionKind.COUNT)
    assert answers["how many boxes have you seen ?"] == "5"
    assert answers["how many balls have you seen ?"] == "0"
    assert "how many chairs have you seen ?" not in answers
    assert len(answers) == len(Kind) - 1
    six = walk_of({box: [0, CLEAR, 0, 0] for box in boxes[:6]})
    assert "how many boxes have you seen ?" not in asked(six, QuestionKind.COUNT)


@pytest.mark.parametrize(
    ("chair", "fps", "is_asked"),
    [
        ([0, 0, CLEAR, 0], 2.0, True),
        ([0, 0, CLEAR, 0], 2.1, False),
        ([0, CLEAR, 0, 0], 1.0, False),
        ([0, 1, CLEAR, 0], 1.0, False),
        ([1, 0, CLEAR, 0], 1.0, False),
        ([0, 0, FAINT, CLEAR], 1.0, True),
        ([0, 0, FAINT, FAINT], 1.0, False),
    ],
)
def test_first_is_asked_where_no_faint_sighting_could_turn_it(chair: list[int], fps: float, is_asked: bool) -> None:
    answers = asked(walk_of({CHAIR: chair, BALL: [0, CLEAR, 0, 0]}, fps=fps), QuestionKind.FIRST)
    both_ways = {
        "which came first , the red ball or the blue chair ?": "red ball",
        "which came first , the blue chair or the red ball ?": "red ball",
    }
    assert answers == (both_ways if is_asked else {})


def test_first_names_its_evidence_in_order_and_its_choices_as_in_the_text() -> None:
    walk = walk_of({CHAIR: [0, 0, FAINT, CLEAR], BALL: [FAINT, CLEAR, 0, 0]})
    for question in candidates(walk, np.random.default_rng(0))[QuestionKind.FIRST]:
        assert question.evidence == (1, 3)
        assert question.text == "which came first , the {} or the {} ?".format(*question.choices)


@pytest.mark.parametrize(
    ("column", "answer"),
    [
        (0.0, "left"),
        (0.28, "left"),
        (0.29, None),
        (0.38, None),
        (0.39, "centre"),
        (0.61, "centre"),
        (0.62, None),
        (0.71, None),
        (0.72, "right"),
        (1.0, "right"),
    ],
)
def test_where_is_asked_away_from_the_borders_of_the_thirds(column: float, answer: str | None) -> None:
    walk = walk_of({BALL: [0, 0, 0, CLEAR], CHAIR: [9, 9, 9, FAINT]}, column=column)
    assert asked(walk, QuestionKind.WHERE) == ({"where is the red ball now ?": answer} if answer else {})


@pytest.mark.parametrize(
    ("ball", "fps", "answer"),
    [
        ([CLEAR, 0, 0, 0], 1.0, "3"),
        ([CLEAR, FAINT, 0, 0], 1.0, None),
        ([9, 9, 9, CLEAR], 1.0, "0"),
        ([9, CLEAR, 0, 0], 2.0, "1"),
        ([CLEAR, 0, 0, 0], 2.0, None),
        ([CLEAR, 0, 0, 0], 3 / 1.39, "1"),
        ([CLEAR, 0, 0, 0], 3 / 1.41, None),
        ([CLEAR, 0, 0, 0], 3 / 1.59, None),
        ([CLEAR, 0, 0, 0], 3 / 1.61, "2"),
        ([CLEAR, FAINT, 0, 0], 3 / 1.2, "1"),
        ([CLEAR, FAINT, 0, 0], 3 / 1.65, None),
        ([CLEAR, 0, 0, 0], 3 / 20, "20"),
        ([CLEAR, 0, 0, 0], 3 / 21, None),
        ([9, 9, 9, CLEAR], 6.1, None),
        ([FAINT, 0, 0, 0], 1.0, None),
    ],
)
def test_when_is_asked_if_every_reading_rounds_alike(ball: list[int], fps: float, answer: str | None) -> None:
    text = "how many seconds ago was the red ball last seen ?"
    assert asked(walk_of({BALL: ball}, fps=fps), QuestionKind.WHEN) == ({text: answer} if answer else {})


def test_when_offers_the_seconds_that_have_passed() -> None:
    for frames, last in ((4, "3"), (21, "20"), (40, "20")):
        walk = walk_of({BALL: [0] * (frames - 1) + [CLEAR]})
        (question,) = candidates(walk, np.random.default_rng(0))[QuestionKind.WHEN]
        assert question.choices == tuple(str(second) for second in range(int(last) + 1))


def test_room_of_a_thing_is_asked_if_it_was_clear_from_within() -> None:
    text, room = "which room is the blue chair in ?", [0, 0, 1, 1]
    within = walk_of({CHAIR: [90, 0, CLEAR, 9]}, room=room)
    assert asked(within, QuestionKind.ROOM)[text] == "cyan"
    questions = [candidates(within, np.random.default_rng(seed))[QuestionKind.ROOM] for seed in range(12)]
    assert {question.evidence for drawn in questions for question in drawn if question.text == text} == {(3,)}
    assert text not in asked(walk_of({CHAIR: [90, 90, FAINT, 0]}, room=room), QuestionKind.ROOM)


@pytest.mark.parametrize(
    ("chair", "ball", "room", "is_asked"),
    [
        (CLEAR, 0, [0, 0, 1, 1], True),
        (CLEAR, FAINT, [0, 0, 1, 1], True),
        (CLEAR, CLEAR, [0, 0, 1, 1], False),
        (FAINT, 0, [0, 0, 1, 1], False),
        (CLEAR, 0, [1, 1, 0, 1], False),
    ],
)
def test_own_room_is_asked_well_inside_it(chair: int, ball: int, room: list[int], is_asked: bool) -> None:
    walk = walk_of({CHAIR: [0, 0, 0, chair], BALL: [0, 0, 0, ball]}, room=room, fps=1.01)
    answers = asked(walk, QuestionKind.ROOM)
    assert answers.get("which room are you in now ?") == ("cyan" if is_asked else None)


def test_own_room_is_asked_in_the_first_room_and_at_any_frame_rate() -> None:
    walk = walk_of({BALL: [CLEAR]}, room=[0])
    assert asked(walk, QuestionKind.ROOM) == {
        "which room is the red ball in ?": "green",
        "which room are you in now ?": "green",
    }


def test_walk_without_frames_raises_no_questions() -> None:
    by_kind = candidates(walk_of({}, num_frames=0), np.random.default_rng(0))
    assert by_kind == {kind: [] for kind in QuestionKind}


def test_empty_house_can_only_be_counted() -> None:
    by_kind = candidates(walk_of({}), np.random.default_rng(0))
    assert {kind for kind, questions in by_kind.items() if questions} == {QuestionKind.COUNT}
    assert {question.answer for question in by_kind[QuestionKind.COUNT]} == {"0"}


def test_house_of_one_room_is_not_asked_which() -> None:
    walk = replace(walk_of({BALL: [CLEAR, CLEAR]}), rooms=(Colour.GREEN,))
    assert asked(walk, QuestionKind.ROOM) == {}
