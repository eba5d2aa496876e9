"""Answers: what counts as right, shares against slow second versions, baselines, evidence, and what is refused."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtake.errors import InputError
from longtake.evaluation.answers import AskedAnswer, Share, measure_answers, normalise, seconds_in


def asked(truth: str, given: str | None, kind: str = "colour", choices: tuple[str, ...] = ()) -> AskedAnswer:
    return AskedAnswer(kind=kind, truth=truth, given=given, choices=choices)


@pytest.mark.parametrize(
    ("given_text", "truth"),
    [
        ("Red", "red"),
        ("  the RED box. ", "red box"),
        ("A red, box!", "red box"),
        ("an orange_ball", "orange ball"),
        ("«Blue»", "blue"),
        ("3.", "3"),
        ("-3", "-3"),
        ("Straße", "STRASSE"),
        ("A", "a"),
        ("3rd", "3RD"),
    ],
)
def test_case_punctuation_and_articles_do_not_matter(given_text: str, truth: str) -> None:
    assert asked(truth, given_text).is_right


@pytest.mark.parametrize(
    ("given_text", "truth"),
    [
        ("red", "blue"),
        ("red box", "red"),
        ("redbox", "red box"),
        ("box red", "red box"),
        ("", "red"),
        ("?!", "red"),
        ("3", "-3"),
        ("35", "3.5"),
        ("3 5", "3.5"),
        ("the", "a"),
        ("another box", "box"),
    ],
)
def test_other_words_and_numbers_are_wrong(given_text: str, truth: str) -> None:
    assert not asked(truth, given_text).is_right


@given(st.text(max_size=30))
@example(".0A")
@example("..5s")
def test_normalised_answers_stay_as_they_are(answer: str) -> None:
    assert normalise(normalise(answer)) == normalise(answer)


@pytest.mark.parametrize(
    ("given_text", "is_right"),
    [
        ("10", True),
        ("12", True),
        ("8.0 seconds ago", True),
        ("about 11.9s", True),
        ("12.01", False),
        ("7.9", False),
        ("-10", False),
        ("ten", False),
        ("10 or 12", False),
        ("9-11", False),
        ("", False),
    ],
)
def test_seconds_may_be_off_by_two(given_text: str, is_right: bool) -> None:
    assert asked("10", given_text, kind="when").is_right is is_right


def test_only_kind_when_tolerates_other_numbers() -> None:
    assert not asked("10", "11", kind="count").is_right
    assert seconds_in("at 4.5 s") == 4.5
    assert seconds_in("box2") is None


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 500), data=st.data())
def test_wilson_interval_ends_where_the_score_test_rejects(total: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, total))
    share = Share(hits, total)
    low, high = share.interval
    assert 0 <= low <= share.value <= high <= 1
    assert low == pytest.approx(slow_bound(hits, total, -1), abs=1e-9)
    assert high == pytest.approx(slow_bound(hits, total, 1), abs=1e-9)


def slow_bound(hits: int, total: int, side: int) -> float:
    """By bisection, the share farthest from the one seen that is still within 1.96 of its own deviations."""
    seen = hits / total
    inside, outside = seen, (1.0 if side > 0 else 0.0)
    if seen == outside:
        return outside
    for _ in range(200):
        middle = (inside + outside) / 2
        if abs(seen - middle) <= 1.959963984540054 * math.sqrt(middle * (1 - middle) / total):
            inside = middle
        else:
            outside = middle
    return inside


def test_wilson_interval_of_a_textbook_case() -> None:
    assert Share(8, 10).interval == (pytest.approx(0.4901625, abs=1e-6), pytest.approx(0.9433178, abs=1e-6))
    assert Share(0, 5).interval[0] == 0
    assert Share(5, 5).interval[1] == 1


def test_shares_are_counted_by_kind_and_in_all() -> None:
    answers = [
        asked("red", "Red", choices=("red", "blue")),
        asked("red", "blue", choices=("red", "blue")),
        asked("blue", None, choices=("red", "blue")),
        asked("yes", "yes", kind="seen", choices=("yes", "no")),
        asked("a box", "the ball", kind="first"),
    ]
    report = measure_answers(answers)
    assert list(report.by_kind) == ["colour", "first", "seen"]
    assert report.total.right == Share(2, 5)
    assert report.total.num_unanswered == 1
    colour = report.by_kind["colour"]
    assert (colour.right, colour.num_unanswered) == (Share(1, 3), 1)
    assert colour.commonest == pytest.approx(2 / 3)
    assert colour.chance == pytest.approx(1 / 2)
    assert report.by_kind["first"].chance is None
    assert report.total.commonest == pytest.approx((2 + 1 + 1) / 5)
    assert report.total.chance == pytest.approx((3 * 0.5 + 0.5 + 0) / 5)
    assert report.total.evidence is None


ROWS = st.tuples(
    st.sampled_from(["0", "1", "2", "2.5", "The 4", "7", "12"]),
    st.none() | st.sampled_from(["0", "1", "3", "4", "9.0", "12", "none"]),
    st.sampled_from(["when", "count", "room"]),
    st.sampled_from(
        [(), ("0", "1", "2", "2.5", "4", "7", "12"), ("the 0", "1", "2", "2.5", "3", "4", "7", "12", "99")]
    ),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=25))
def test_baselines_equal_trying_every_answer(rows: list[tuple[str, str | None, str, tuple[str, ...]]]) -> None:
    answers = [asked(*row) for row in rows]
    report = measure_answers(answers)
    most_right = 0
    for kind, score in report.by_kind.items():
        some = [answer for answer in answers if answer.kind == kind]
        best = max(sum(answer.accepts(other.truth) for answer in some) for other in some)
        assert score.commonest == pytest.approx(best / len(some))
        most_right += best
    assert report.total.commonest == pytest.approx(most_right / len(answers))
    chances = [
        Fraction(sum(answer.accepts(choice) for choice in answer.choices), len(answer.choices) or 1)
        for answer in answers
    ]
    if any(answer.choices for answer in answers):
        assert report.total.chance == pytest.approx(float(sum(chances) / len(answers)))
    else:
        assert report.total.chance is None
    assert sum(score.right.hits for score in report.by_kind.values()) == report.total.right.hits


def test_commonest_time_counts_both_ends_of_its_tolerance() -> None:
    answers = [asked(truth, None, kind="when") for truth in ("4", "0", "2", "30")]
    assert measure_answers(answers).total.commonest == 3 / 4


def test_evidence_is_met_where_the_span_holds_one_of_its_frames() -> None:
    def pointed(evidence: tuple[int, ...], span: tuple[int, int] | None) -> AskedAnswer:
        return AskedAnswer(kind="seen", truth="yes", given="yes", evidence=evidence, span=span)

    answers = [
        pointed((5, 90), (85, 95)),
        pointed((5,), (5, 5)),
        pointed((5, 9), (6, 8)),
        pointed((5,), None),
        pointed((), (0, 100)),
    ]
    score = measure_answers(answers).total.evidence
    assert score is not None
    assert score.met == Share(2, 4)
    assert score.num_without_span == 1
    assert score.mean_span_frames == pytest.approx((11 + 1 + 3) / 3)
    unpointed = measure_answers([pointed((5,), None)]).total.evidence
    assert unpointed is not None
    assert (unpointed.met, unpointed.mean_span_frames) == (Share(0, 1), None)


def test_bad_answers_are_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="Expected one answer or more to measure"):
        measure_answers([])
    with pytest.raises(InputError, match="kind 'colour' has ' !' as its true answer; give it a word"):
        asked(" !", "red")
    with pytest.raises(InputError, match="Expected seconds as the true answer of a 'when' question, not 'early'"):
        asked("early", "4", kind="when")
    with pytest.raises(InputError, match="'red', among its choices, but they are blue, green"):
        asked("red", "red", choices=("blue", "green"))
    for span in ((-1, 4), (5, 4)):
        with pytest.raises(InputError, match=f"first to last, but a 'seen' answer points at {span[0]} to {span[1]}"):
            AskedAnswer(kind="seen", truth="yes", given="yes", span=span)
