"""Answers about unseen houses: questions reach as far back as they must, truth is right, streams equal whole clips."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sighted import made_up
from slow_answers import answer_of

from longtake.bench.answers import (
    Answers,
    AnswersRow,
    AnswersSettings,
    AskedWorld,
    GivenAnswer,
    WorldAnswers,
    ask_world,
    measure_sessions,
)
from longtake.bench.answers_offline import OfflineModel
from longtake.bench.answers_policies import open_variant, variant_named
from longtake.bench.answers_scoring import (
    ALL,
    KINDS,
    commonest_answer,
    evidence_scores,
    ratio_over_worlds,
    scores,
)
from longtake.cli.answer_policies import variants
from longtake.cli.bench_policies import ANSWERS_PICTURE, bench_policies
from longtake.errors import CheckpointError, InputError, SettingError
from longtake.evaluation.agreement import bootstrap_interval
from longtake.evaluation.asked_walk import (
    WITHIN,
    PosedQuestion,
    QuestionPlan,
    Reach,
    WalkFrames,
    film_walk,
    is_right,
    met_by_chance,
    pose_questions,
    reach_of,
)
from longtake.language.load import LanguageModel, load_language
from longtake.language.sampling import TextSampling
from longtake.world.question import Phrase, Question, QuestionKind
from longtake.world.question_sampler import QuestionSampler
from longtake.world.seeds import Split
from longtake.world.things import Sightings
from longtake.world.tour import Tour, sightings
from longtake.world.visibility import clear_pixels
from training.vqa_model import TINY_VQA, build_vqa, save_vqa

SIZE = (28, 42)
ASKING = QuestionPlan(num_frames=12, fps=2.0, num_moments=3, num_questions=7, recent_s=1.5)
KEEP_ALL, WINDOW = variant_named("keep-all", ""), variant_named("window", "4 frames")
SETTINGS = AnswersSettings(variants=(KEEP_ALL, WINDOW), asking=ASKING, num_worlds=2, size=SIZE, num_training=2)
OPTIONS = {
    "model": "none",
    "language": "micro-vqa",
    "worlds": 2,
    "split": Split.VALIDATION,
    "ask_size": "42x28",
    "ask_frames": 8,
    "ask_fps": 2.0,
    "moments": 2,
    "questions": 7,
    "recent": 1.0,
    "ask_policy": "keep-all",
    "budgets": "4",
    "training": 2,
    "offline": 3,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("vqa")
    save_vqa(build_vqa(TINY_VQA), path)
    return path


@pytest.fixture(scope="module")
def language(folder: Path) -> LanguageModel:
    return load_language(folder)


@pytest.fixture(scope="module")
def film() -> WalkFrames:
    return film_walk(9, ASKING, SIZE, lambda _: None)


@pytest.fixture(scope="module")
def posed(film: WalkFrames) -> tuple[PosedQuestion, ...]:
    return pose_questions(QuestionSampler(np.random.default_rng(0)), film.seen, ASKING)


@pytest.fixture(scope="module")
def answers(language: LanguageModel) -> Answers:
    ticks: list[int] = []
    found = measure_sessions(language, SETTINGS, ticks.append)
    assert sum(ticks) == SETTINGS.num_steps == 12 * (2 + 2 * 3)
    return found


def question(kind: QuestionKind, answer: str, *, frame: int = 9, evidence: tuple[int, ...] = ()) -> Question:
    return Question(
        kind=kind,
        text="have you seen a red box ?",
        answer=answer,
        choices=("red box", "blue cone"),
        frame=frame,
        timestamp_s=float(frame),
        evidence=evidence,
    )


def answered(*worlds: Sequence[tuple[PosedQuestion, str]], span: tuple[int, int] | None = None) -> AnswersRow:
    """A row in which these texts were said."""
    rows = []
    for seed, said in enumerate(worlds):
        told = tuple(GivenAnswer(posed=one, text=text, ids=(1,), span=span) for one, text in said)
        asked = AskedWorld(given=told, seeing_s=1.0, asking_s=1.0, live_bytes=8)
        rows.append(WorldAnswers(seed=seed, asked=asked, num_offline=0, num_equal=0))
    return AnswersRow(variant=KEEP_ALL, worlds=tuple(rows))


def test_film_is_every_fifth_step_of_the_tour(film: WalkFrames) -> None:
    tour = Tour(seed=9, width=SIZE[1], height=SIZE[0])
    views = list(itertools.islice(tour.views(), 0, 56, 5))
    assert film.times_s == tuple(np.arange(12) / 2)
    assert torch.equal(film.frames, torch.stack([(view.image * 255).round().byte() for view in views]))
    want = sightings(tour, tour.house(), views)
    assert (film.seen.things, film.seen.rooms, film.seen.image_pixels) == (want.things, want.rooms, 28 * 42)
    for got, true in zip(
        (film.seen.timestamp_s, film.seen.room, film.seen.pixels, film.seen.column),
        (want.timestamp_s, want.room, want.pixels, want.column),
        strict=True,
    ):
        np.testing.assert_allclose(got, true)


@given(st.integers(4, 90), st.integers(1, 9))
def test_moments_are_spread_over_the_walk_and_end_it(num_frames: int, num_moments: int) -> None:
    moments = replace(ASKING, num_frames=num_frames, num_moments=num_moments).moments
    assert moments[-1] == num_frames
    assert list(moments) == sorted(set(moments))
    assert moments[0] >= 2
    assert len(moments) <= num_moments
    assert num_moments < 2 or num_frames < 6 * num_moments or any(moment % 2 for moment in moments)


def test_frames_come_at_any_rate_up_to_that_of_the_walk() -> None:
    assert replace(ASKING, fps=10.0).steps == list(range(12))
    assert replace(ASKING, num_frames=5, fps=3.0).steps == [0, 3, 7, 10, 13]


def forgotten(seen: Sightings, before: int) -> Sightings:
    pixels = seen.pixels.copy()
    pixels[:before] = 0
    return replace(seen, pixels=pixels)


def oldest_needed(one: Question, seen: Sightings) -> int:
    """Forget one frame after the other until the answer is another; it may be right again later on, but by luck."""
    clear = clear_pixels(seen)
    wrong = (
        before for before in range(1, one.frame + 1) if answer_of(one, forgotten(seen, before), clear) != one.answer
    )
    return next(wrong, one.frame + 1) - 1


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_questions_reach_back_as_far_as_one_must_remember(seed: int) -> None:
    seen = made_up(seed, 24)
    for one in QuestionSampler(np.random.default_rng(seed)).ask(seen, 21):
        if one.kind is QuestionKind.ROOM:  # the slow twin takes a glance through a door for enough
            continue
        if one.answer in ("no", "0") and not one.evidence:
            assert reach_of(one, seen, 100.0) is Reach.ABSENT
            continue
        ago_s = one.timestamp_s - float(seen.timestamp_s[oldest_needed(one, seen)])
        assert reach_of(one, seen, ago_s) is Reach.REALTIME
        assert reach_of(one, seen, ago_s - 0.25) is Reach.RECALL


def test_a_room_is_told_from_within_and_your_own_room_now() -> None:
    seen = made_up(3, 24)
    rooms = [one for one in QuestionSampler(np.random.default_rng(4)).ask(seen, 60) if one.kind is QuestionKind.ROOM]
    assert rooms
    for one in rooms:
        (index,) = [at for at, thing in enumerate(seen.things) if thing.name in one.text]
        is_there = (seen.pixels[:, index] >= clear_pixels(seen)) & (seen.room == seen.things[index].room)
        ago_s = one.timestamp_s - float(seen.timestamp_s[np.flatnonzero(is_there)[-1]])
        assert reach_of(one, seen, ago_s) is Reach.REALTIME
        assert reach_of(one, seen, ago_s - 0.25) is Reach.RECALL
    now = replace(question(QuestionKind.ROOM, "red", frame=20, evidence=(20,)), text=str(Phrase.ROOM_NOW))
    assert reach_of(replace(now, timestamp_s=10.0), seen, 0.0) is Reach.REALTIME


@pytest.mark.parametrize(
    ("kind", "truth", "text", "right"),
    [
        ("first", "red box", "The red box.", True),
        ("first", "red box", "red", False),
        ("when", "7", "7", True),
        ("when", "7", "9", False),
        (WITHIN, "7", "9", True),
        (WITHIN, "7", "10", False),
        (WITHIN, "7", "left", False),
        ("seen", "yes", "", False),
    ],
)
def test_answers_are_right_in_other_letters_and_nearly_where_that_is_asked(
    kind: str, truth: str, text: str, right: bool
) -> None:
    assert is_right(kind, question(QuestionKind.WHEN, truth), text) is right


def test_commonest_answer_is_a_place_among_two_things_and_a_middle_of_seconds() -> None:
    assert commonest_answer("seen", []) is None
    counted = [question(QuestionKind.COUNT, answer) for answer in ("3", "1", "3", "2")]
    assert commonest_answer("count", counted) == "3"
    ordered = [question(QuestionKind.FIRST, answer) for answer in ("blue cone", "red box", "blue cone")]
    assert commonest_answer("first", ordered) == "1"
    timed = [question(QuestionKind.WHEN, answer) for answer in ("1", "1", "4", "5", "6", "8")]
    assert commonest_answer("when", timed) == "1"
    assert commonest_answer(WITHIN, timed) == "6"


def test_shares_of_equal_worlds_have_the_interval_of_a_mean() -> None:
    right = [3.0, 1.0, 4.0, 2.0, 0.0]
    share = ratio_over_worlds(right, [4.0] * 5)
    assert share is not None
    assert share.value == 0.5
    assert (share.low, share.high) == pytest.approx(bootstrap_interval(np.array(right) / 4, np.mean))


def test_share_needs_a_question_and_its_interval_two_worlds() -> None:
    assert ratio_over_worlds([0.0, 0.0], [0.0, 0.0]) is None
    alone = ratio_over_worlds([1.0], [4.0])
    assert alone is not None
    assert (alone.value, alone.low, alone.high) == (0.25, None, None)
    sparse = ratio_over_worlds([0.0, 2.0], [0.0, 4.0])
    assert sparse is not None
    assert (sparse.low, sparse.high) == (0.5, 0.5)


@given(st.integers(0, 11), st.integers(1, 12))
def test_one_moment_is_met_by_chance_as_often_as_the_span_is_long(moment: int, length: int) -> None:
    one = question(QuestionKind.WHEN, "1", frame=11, evidence=(moment,))
    assert met_by_chance(one, (0, length - 1)) == pytest.approx(length / 12)


def test_any_of_several_moments_will_do_but_of_two_things_the_first_decides() -> None:
    counted = question(QuestionKind.COUNT, "2", frame=9, evidence=(2, 7))
    assert met_by_chance(counted, (4, 5)) == pytest.approx(0.4)
    first = question(QuestionKind.FIRST, "red box", frame=9, evidence=(2, 7))
    assert met_by_chance(first, (4, 5)) == pytest.approx(0.2)


def test_truth_is_always_right_and_far_above_the_commonest_answer(posed: tuple[PosedQuestion, ...]) -> None:
    row = answered([(one, one.question.answer) for one in posed], [(one, one.question.answer) for one in posed])
    found = scores(row, posed)
    assert {score.kind for score in found} <= {*KINDS, ALL}
    for score in found:
        assert (score.right.value, score.right.low, score.right.high) == (1, 1, 1)
        if score.commonest is not None and score.above is not None:
            assert score.above.value == pytest.approx(1 - score.commonest.value)
    (total,) = [score for score in found if score.kind == ALL and score.reach is None]
    apart = [score.num_questions for score in found if score.kind == ALL and score.reach is not None]
    assert total.num_questions == sum(apart) == 2 * len(posed)
    by_kind = [score.num_questions for score in found if score.reach is None and score.kind not in (ALL, WITHIN)]
    assert sum(by_kind) == total.num_questions


def test_baseline_knows_answers_of_training_houses_alone() -> None:
    def counted(answer: str) -> PosedQuestion:
        return PosedQuestion(question=question(QuestionKind.COUNT, answer, evidence=(1,)), reach=Reach.RECALL)

    row = answered([(counted("1"), "1"), (counted("1"), "2")], [(counted("3"), "3"), (counted("1"), "1")])
    training = (counted("3"), counted("3"), counted("1"))
    (score, *_) = scores(row, training)
    assert (score.kind, score.reach, score.num_questions, score.num_worlds) == ("count", None, 4, 2)
    assert score.right.value == 0.75
    assert score.commonest is not None
    assert score.above is not None
    assert score.commonest.value == 0.25
    assert score.above.value == 0.5
    assert (score.above.low, score.above.high) == (0.5, 0.5)


def test_reach_that_gives_the_answer_away_has_no_baseline() -> None:
    seen = PosedQuestion(question=question(QuestionKind.SEEN, "yes", evidence=(1,)), reach=Reach.RECALL)
    absent = PosedQuestion(question=question(QuestionKind.SEEN, "no"), reach=Reach.ABSENT)
    row = answered([(seen, "yes"), (absent, "no")])
    found = {(score.kind, score.reach): score.commonest for score in scores(row, (seen, absent))}
    assert found["seen", None] is not None
    assert found["seen", Reach.RECALL] is None
    assert found["seen", Reach.ABSENT] is None
    assert found[ALL, Reach.RECALL] is None
    assert all(score.commonest is None for score in scores(row, ()))


def test_evidence_is_met_where_the_span_holds_the_moment() -> None:
    when = [
        PosedQuestion(question=question(QuestionKind.WHEN, "1", evidence=(moment,)), reach=Reach.RECALL)
        for moment in (2, 3, 6)
    ]
    row = answered([(one, "1") for one in when[:2]], [(when[2], "1")], span=(2, 3))
    assert evidence_scores(row, least_frames=11) == []
    (score,) = evidence_scores(row, least_frames=10)
    assert (score.kind, score.num_questions, score.span_frames) == ("when", 3, 2)
    assert score.met.value == pytest.approx(2 / 3)
    assert score.chance.value == pytest.approx(0.2)
    assert score.times_chance is not None
    assert score.times_chance.value == pytest.approx(10 / 3)
    (without,) = evidence_scores(answered([(when[0], "1")]), least_frames=10)
    assert (without.met.value, without.times_chance) == (0, None)


@pytest.mark.parametrize(
    ("policy", "memory", "num_grids"),
    [
        ("keep-all", "4 frames", 6),
        ("window", "8 frames", 4),
        ("thinned", "8 frames", 4),
        ("novel", "4 frames", 2),
        ("recent-6", "4 frames", 3),
    ],
)
def test_policies_remember_as_much_as_they_say(
    language: LanguageModel, film: WalkFrames, policy: str, memory: str, num_grids: int
) -> None:
    session = open_variant(language, variant_named(policy, memory), num_frames=12, size=SIZE)
    first = None
    for frame, time_s in zip(film.frames, film.times_s, strict=True):
        session.see(frame[None], [time_s])
        first = first or session.info.num_tokens or None
    assert first is not None
    per_grid = 24
    assert session.info.num_tokens == first + (num_grids - 1) * per_grid
    session.close()


def test_answers_do_not_depend_on_what_was_asked_before(
    language: LanguageModel, film: WalkFrames, posed: tuple[PosedQuestion, ...]
) -> None:
    last = [one for one in posed if one.num_seen == 12]
    assert len(last) < len(posed)
    after_others, alone = ask_world(language, WINDOW, film, posed), ask_world(language, WINDOW, film, last)
    assert [one.ids for one in after_others.given[-len(last) :]] == [one.ids for one in alone.given]
    assert [one.posed for one in after_others.given] == sorted(posed, key=lambda one: one.num_seen)


@pytest.mark.extra
def test_last_frames_anew_are_a_session_that_saw_no_others(
    language: LanguageModel, film: WalkFrames, posed: tuple[PosedQuestion, ...]
) -> None:
    got = ask_world(language, variant_named("anew-4", ""), film, posed)
    for one in got.given:
        first = max(0, one.posed.num_seen - 4)
        session = open_variant(language, KEEP_ALL, num_frames=4, size=SIZE)
        session.see(film.frames[first : one.posed.num_seen], film.times_s[first : one.posed.num_seen])
        assert session.ask(one.posed.question.text, TextSampling(max_new_tokens=4)).ids == one.ids
        session.close()
        assert one.span is None or first <= one.span[0] <= one.span[1] < one.posed.num_seen


@pytest.mark.extra
def test_streamed_answers_are_those_of_whole_clips(answers: Answers) -> None:
    kept, window = answers.rows
    assert kept.num_equal == kept.num_offline == 16
    assert window.num_offline == 0


def test_another_answer_is_not_taken_for_the_same(
    language: LanguageModel, film: WalkFrames, posed: tuple[PosedQuestion, ...]
) -> None:
    (first, *_) = ask_world(language, KEEP_ALL, film, posed[:1]).given
    num_seen, text = first.posed.num_seen, first.posed.question.text
    other = (first.ids[0] + 1, *first.ids[1:])
    said = OfflineModel(language).answer(film.frames[:num_seen], film.times_s[:num_seen], text, other)
    assert said[0] == first.ids[0] != other[0]


def test_all_ways_to_watch_are_asked_the_same_about_test_houses(answers: Answers) -> None:
    kept, window = answers.rows
    assert [world.seed for world in kept.worlds] == [9, 19]
    for one, other in zip(kept.worlds, window.worlds, strict=True):
        assert [given.posed for given in one.asked.given] == [given.posed for given in other.asked.given]
    assert window.live_bytes < kept.live_bytes
    assert kept.num_questions == sum(len(world.asked.given) for world in kept.worlds) > 20
    asked = {given.posed.num_seen for world in kept.worlds for given in world.asked.given}
    assert asked == set(ASKING.moments)


def test_policies_and_budgets_are_combined() -> None:
    found = variants(["keep-all", "window", "recent-8"], [8, 16])
    assert [variant.name for variant in found] == ["keep-all", "window, 8 frames", "window, 16 frames", "recent-8"]
    assert [variant.num_frames for variant in found] == [None, 8, 16, 8]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ask_policy": "lots"}, "Expected a memory policy of keep-all, window, .* but got 'lots'"),
        ({"ask_policy": "recent-N"}, "even number of frames from 4 on, but got 'recent-N'"),
        ({"ask_policy": "recent-5"}, "even number of frames from 4 on, but got 'recent-5'"),
        ({"ask_policy": "anew-2"}, "even number of frames from 4 on, but got 'anew-2'"),
        ({"ask_policy": "window", "budgets": "2MB"}, "such as 4,8,16, but got '2MB'"),
        ({"ask_policy": "window", "budgets": "5"}, "such as '16 frames', but got '5 frames'"),
        ({"ask_frames": 3}, "walks of 4 frames at least, but got 3"),
        ({"ask_fps": 12.0}, "above 0 and up to 10, but got 12"),
        ({"ask_fps": float("nan")}, "but got nan"),
        ({"moments": 0}, "but got 0 moments"),
        ({"recent": -1.0}, "and -1 s"),
        ({"ask_size": "small"}, "Expected a size"),
        ({"worlds": 0}, "name one of each"),
    ],
)
def test_option_without_meaning_is_refused(changes: dict[str, str | int | float], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        bench_policies(**OPTIONS | changes)


def test_model_and_folder_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="but nothing is there"):
        bench_policies(**OPTIONS | {"language": str(tmp_path / "none")})
    with pytest.raises(InputError, match=r"no folder .*missing to write a\.json"):
        bench_policies(**OPTIONS, card=tmp_path / "missing" / "a.json")


@pytest.mark.extra
def test_table_json_card_and_plot_are_written(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options, card = OPTIONS | {"language": str(folder)}, tmp_path / "card.json"
    bench_policies(**options, plots=tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert f"keep-all, {folder}, 2 validation worlds, 8 frames at 2 a second, CPU, 1 thread; a world took" in said
    assert "when, within 2 s" in said
    assert "6 of 6 streamed answers are those of one forward pass over the whole clip" in said
    assert (tmp_path / ANSWERS_PICTURE).read_bytes().startswith(b"\x89PNG")
    bench_policies(**options, as_json=True, card=card)
    (written,) = json.loads(capsys.readouterr().out).values()
    assert len(written["weights_sha256"]) == 64
    (row,) = written["rows"]
    assert [world["seed"] for world in row["worlds"]] == [8, 18]
    asked = [one for world in row["worlds"] for one in world["answers"]]
    right = sum(one["given"] == one["answer"] for one in asked)
    assert row["scores"]["anywhere"]["all"]["right"]["value"] == pytest.approx(right / len(asked))
    assert {one["reach"] for one in asked} <= {str(reach) for reach in Reach}
    assert set(row["evidence"]) <= {str(kind) for kind in QuestionKind}
    assert row["offline"] == {"num_questions": 6, "num_equal": 6}
    del row["worlds"]
    assert json.loads(card.read_text()) == written


@pytest.mark.extra
def test_policies_are_compared_realtime_and_recall_apart(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    changes = {"language": str(folder), "worlds": 1, "ask_policy": "window,keep-all,recent-4", "budgets": "4,6"}
    options = OPTIONS | changes
    bench_policies(**options, plots=tmp_path)
    said = capsys.readouterr().out
    for words in (
        "realtime, % right",
        "recall, % right",
        "never seen, % right",
        "window, 6 frames",
        "commonest answer",
    ):
        assert words in said
    assert (tmp_path / ANSWERS_PICTURE).read_bytes().startswith(b"\x89PNG")
