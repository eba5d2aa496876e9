"""How well a session answers about walks through houses that its network has never seen, against the truth.

Each world is filmed once; all variants see the same frames and are asked the same questions, each on a fork, so that
none leaves a trace.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from longtake.attention.backend import Backend
from longtake.bench.answers_offline import OfflineModel
from longtake.bench.answers_policies import MemoryVariant, open_variant
from longtake.errors import SettingError
from longtake.evaluation.asked_walk import PosedQuestion, QuestionPlan, WalkFrames, film_walk, pose_questions
from longtake.evaluation.spacing import evenly_spaced
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.runtime.answers import Answer
from longtake.runtime.dialogue import DialogueSession
from longtake.world.question_sampler import QuestionSampler
from longtake.world.seeds import Split, seeds

_SAMPLING = TextSampling(max_new_tokens=4)
"""No answer has more than two words and its end."""
_TRAINING_SIZE = (28, 42)
"""Houses for training are only counted in, which pixels a quarter as fine do as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSettings:
    """What is watched and asked, and how."""

    variants: tuple[MemoryVariant, ...]
    asking: QuestionPlan
    num_worlds: int
    size: tuple[int, int]
    """Height and width."""
    split: Split = Split.TEST
    num_training: int = 50
    """Houses from which it is known which answers are common."""
    num_offline: int = 8
    """Questions of each world that are put to a plain network too, where all is kept."""

    def __post_init__(self) -> None:
        if not self.variants or self.num_worlds < 1 or self.num_training < 1 or self.num_offline < 0:
            raise SettingError("Expected a variant, a world and a house for training at least; name one of each.")

    @property
    def num_steps(self) -> int:
        """Frames filmed, of houses for training too, and frames watched."""
        return self.asking.num_frames * (self.num_training + self.num_worlds * (1 + len(self.variants)))

    @property
    def compares(self) -> bool:
        """Whether a plain network is needed."""
        return self.num_offline > 0 and any(variant.keeps_all for variant in self.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """What was answered to one question, and what the answer looked at most."""

    posed: PosedQuestion
    text: str
    ids: tuple[int, ...]
    span: tuple[int, int] | None
    """First and last frame of the strongest evidence; none where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWorld:
    """All answers about one walk, how long frames and questions took, and what was remembered."""

    given: tuple[GivenAnswer, ...]
    seeing_s: float
    asking_s: float
    live_bytes: int
    """Keys and values at most, when questions came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldAnswers:
    """One world, watched by one variant."""

    seed: int
    asked: AskedWorld
    num_offline: int
    """Questions put to a plain network too."""
    num_equal: int
    """Of these, those to which it gave the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersRow:
    """All worlds, watched by one variant."""

    variant: MemoryVariant
    worlds: tuple[WorldAnswers, ...]

    @property
    def num_questions(self) -> int:
        return sum(len(world.asked.given) for world in self.worlds)

    @property
    def live_bytes(self) -> int:
        return max(world.asked.live_bytes for world in self.worlds)

    @property
    def question_ms(self) -> float:
        return 1e3 * self.asking_s * len(self.worlds) / max(1, self.num_questions)

    @property
    def seeing_s(self) -> float:
        """Of a world."""
        return sum(world.asked.seeing_s for world in self.worlds) / len(self.worlds)

    @property
    def asking_s(self) -> float:
        """Of a world."""
        return sum(world.asked.asking_s for world in self.worlds) / len(self.worlds)

    @property
    def num_offline(self) -> int:
        return sum(world.num_offline for world in self.worlds)

    @property
    def num_equal(self) -> int:
        return sum(world.num_equal for world in self.worlds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Every variant, and what is asked about houses for training, from which baselines know answers."""

    rows: tuple[AnswersRow, ...]
    training: tuple[PosedQuestion, ...]
    filming_s: float
    """Of a world."""


def measure_sessions(language: LanguageModel, settings: AnswersSettings, progress: Callable[[int], None]) -> Answers:
    """A row for each variant, over the first houses of the split."""
    asking = settings.asking
    for variant in settings.variants:  # a setting that is refused is refused before the work
        open_variant(language, variant, num_frames=asking.num_frames, size=settings.size).close()
    training = pose_training_questions(asking, settings.num_training, progress)
    found: list[list[WorldAnswers]] = [[] for _ in settings.variants]
    sampler, filming_s = QuestionSampler(np.random.default_rng(0)), 0.0
    offline = OfflineModel(language) if settings.compares else None
    for seed in itertools.islice(seeds(settings.split), settings.num_worlds):
        started = time.perf_counter()
        film = film_walk(seed, asking, settings.size, progress)
        posed = pose_questions(sampler, film.seen, asking)
        filming_s += time.perf_counter() - started
        for variant, worlds in zip(settings.variants, found, strict=True):
            asked = ask_world(language, variant, film, posed)
            equal = _compared(offline, film, asked.given, settings.num_offline) if variant.keeps_all else []
            worlds.append(WorldAnswers(seed=seed, asked=asked, num_offline=len(equal), num_equal=sum(equal)))
            progress(asking.num_frames)
    rows = (AnswersRow(variant=variant, worlds=tuple(of)) for variant, of in zip(settings.variants, found, strict=True))
    return Answers(rows=tuple(rows), training=training, filming_s=filming_s / settings.num_worlds)


def pose_training_questions(
    asking: QuestionPlan, num_houses: int, progress: Callable[[int], None]
) -> tuple[PosedQuestion, ...]:
    """What is asked in the same way about the first houses for training."""
    sampler = QuestionSampler(np.random.default_rng(0))
    films = (
        film_walk(seed, asking, _TRAINING_SIZE, progress)
        for seed in itertools.islice(seeds(Split.TRAINING), num_houses)
    )
    return tuple(posed for film in films for posed in pose_questions(sampler, film.seen, asking))


def ask_world(
    language: LanguageModel,
    variant: MemoryVariant,
    film: WalkFrames,
    posed: Sequence[PosedQuestion],
    backend: Backend | None = None,
) -> AskedWorld:
    """Frame by frame; each question right after the last frame that it knows of."""
    num_frames, _, height, width = film.frames.shape
    open_session = partial(
        open_variant, language, variant, num_frames=num_frames, size=(height, width), backend=backend
    )
    moments = sorted({one.num_seen for one in posed})
    if variant.num_anew is None:
        watched = _streamed(open_session, film, moments)
    else:
        watched = _seen_anew(open_session, film, moments, variant.num_anew)
    given, seeing_s, asking_s, live_bytes = list[GivenAnswer](), 0.0, 0.0, 0
    for moment, session in watched:
        started = time.perf_counter()
        for one in posed:
            if one.num_seen == moment:
                answer = session.ask(one.question.text, _SAMPLING)
                span = _top_span(answer, film.times_s[:moment])
                given.append(GivenAnswer(posed=one, text=answer.text, ids=answer.ids, span=span))
        asking_s += time.perf_counter() - started
        info = session.info
        seeing_s = info.seeing_s + (0.0 if variant.num_anew is None else seeing_s)
        live_bytes = max(live_bytes, info.live_bytes)
    return AskedWorld(given=tuple(given), seeing_s=seeing_s, asking_s=asking_s, live_bytes=live_bytes)


def _streamed(
    open_session: Callable[[], DialogueSession], film: WalkFrames, moments: Sequence[int]
) -> Iterator[tuple[int, DialogueSession]]:
    """One session all the way."""
    session, num_seen = open_session(), 0
    for moment in moments:
        _see(session, film, range(num_seen, moment))
        num_seen = moment
        yield moment, session
    session.close()


def _seen_anew(
    open_session: Callable[[], DialogueSession], film: WalkFrames, moments: Sequence[int], num_anew: int
) -> Iterator[tuple[int, DialogueSession]]:
    """At each moment a session that saw the last frames and nothing else."""
    for moment in moments:
        session = open_session()
        _see(session, film, range(max(0, moment - num_anew), moment))
        yield moment, session
        session.close()


def _see(session: DialogueSession, film: WalkFrames, frames: range) -> None:
    for frame in frames:
        session.see(film.frames[frame : frame + 1], [film.times_s[frame]])


def _top_span(answer: Answer, times_s: Sequence[float]) -> tuple[int, int] | None:
    """Frames of the strongest evidence; its end is where the next grid begins, or the newest frame itself."""
    if not answer.evidence:
        return None
    top = answer.evidence[0]
    is_last = top.end_s == times_s[-1]
    within = [
        place
        for place, time_s in enumerate(times_s)
        if top.start_s <= time_s and (time_s < top.end_s or (is_last and time_s == top.end_s))
    ]
    return within[0], within[-1]


def _compared(offline: OfflineModel | None, film: WalkFrames, given: Sequence[GivenAnswer], most: int) -> list[bool]:
    """Of some answers, whether a plain network gives the same."""
    if offline is None:
        return []
    return [_is_equal(offline, film, given[place]) for place in evenly_spaced(len(given), most).tolist()]


def _is_equal(offline: OfflineModel, film: WalkFrames, given: GivenAnswer) -> bool:
    num_seen = given.posed.num_seen
    question = given.posed.question.text
    return offline.answer(film.frames[:num_seen], film.times_s[:num_seen], question, given.ids) == list(given.ids)
