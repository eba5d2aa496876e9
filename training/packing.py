"""Clips with many questions behind each, every one of which sees what a fork of a stream would see at its moment.

opening │ grid 0 │ grid 1 │ … │ held │ question 0 │ question 1 │ … │ padding
        ╰──── the open clip ──╯  │         a question sees the clip up to its moment, the held grid of its moment,
                                 │         and itself; its positions are those that the fork would give it
                                 ╰── a frame that waits for its partner at an odd moment, shown twice

Ids, positions and what is seen are fixed here, in plain numpy, so that other processes can do it ahead of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32

from longtake.language.positions import Text, VideoSpan, grid_times, positions
from longtake.language.qwen2_5_vl import clip_question, open_clip
from longtake.world.question import Question, QuestionKind
from training.vocabulary import Vocabulary

NOTHING = -100
"""The label of a token after which nothing is learned."""
KINDS = tuple(QuestionKind)
_ALIGNED = 16
"""Tokens of a sequence are a multiple of this, as attention on a GPU wants it."""
_SHARED = -1
"""The question of a token that all questions of its moment see."""
_PADDING = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes that all clips of a batch share."""

    num_frames: int
    num_held: int
    """Moments with a frame that waits for its partner."""
    question_tokens: int
    """Places for questions at least; as many more as make a sequence even."""
    rows: int
    columns: int
    num_opening: int

    @property
    def num_grids(self) -> int:
        """Held ones included."""
        return self.num_frames // 2 + self.num_held

    @property
    def num_clip(self) -> int:
        """Tokens up to the end of the clip."""
        return self.num_opening + self.num_frames // 2 * self.rows * self.columns

    @property
    def num_words(self) -> int:
        """Places for questions."""
        before = self.num_clip + self.num_held * self.rows * self.columns
        return self.question_tokens + -(before + self.question_tokens) % _ALIGNED

    @property
    def num_branch(self) -> int:
        """Tokens after the clip."""
        return self.num_held * self.rows * self.columns + self.num_words

    @property
    def num_tokens(self) -> int:
        return self.num_clip + self.num_branch


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Some clips of one shape."""

    grid_frames: Int32[np.ndarray, "clips grids 2"]
    """Which two of the clip's frames each grid shows."""
    rows: Int32[np.ndarray, "clips 3 tokens"]
    """Positions."""
    until: Int32[np.ndarray, "clips branch"]
    """How many tokens of the clip a token after it sees."""
    moment: Int32[np.ndarray, "clips branch"]
    question: Int32[np.ndarray, "clips branch"]
    """Which of the clip's questions a token belongs to; -1 for a held grid."""
    words: Int32[np.ndarray, "clips words"]
    labels: Int32[np.ndarray, "clips words"]
    """What comes next, where that is an answer or its end."""
    kind: Int32[np.ndarray, "clips questions"]
    """Of each question by its index among all kinds; -1 where there is none."""
    evident: Bool[np.ndarray, "clips questions grids"]
    """Which grids show why a question's answer is right, each by itself; none where nothing was there to see."""


Asked = tuple[int, Question]
"""How many frames were seen, and what is asked then."""


class Packer:
    """Packs clips of one shape with the words of one vocabulary."""

    def __init__(self, shape: Shape, words: Vocabulary, tokens_per_second: int) -> None:
        self._shape, self._words, self._tokens_per_second = shape, words, tokens_per_second
        self._special, self._opening = words.special_ids, open_clip(words.special_ids, words.system)
        assert len(self._opening) == shape.num_opening

    def pack(self, times_s: Sequence[float], held: Sequence[int], asked: Sequence[Asked], most: int) -> Packed:
        """One clip whose frames came at these times; questions that find no place, or come after `most`, are left out.

        `held` are the odd moments, by numbers of frames seen.
        """
        shape = self._shape
        assert len(times_s) == shape.num_frames
        assert len(held) == shape.num_held
        since = [time_s - times_s[0] for time_s in times_s]
        moments = {shape.num_frames, *held, *(moment for moment, _ in asked)}
        films = {moment: self._film(since, moment) for moment in moments}
        branches = _Branches(shape, most)
        for moment in held:
            branches.hold(moment, films[moment])
        for moment, question in asked[:most]:
            branches.ask(moment, films[moment], self._ids(question), question)
        clip = positions([Text(shape.num_opening), films[shape.num_frames]]).rows
        pairs = np.arange(shape.num_frames).reshape(-1, 2)
        waiting = [[moment - 1, moment - 1] for moment in held]
        return Packed(
            grid_frames=np.concatenate([pairs, np.array(waiting).reshape(-1, 2)]).astype(np.int32)[None],
            rows=np.concatenate([clip, branches.rows], axis=1).astype(np.int32)[None],
            until=branches.until[None],
            moment=branches.moment[None],
            question=branches.question[None],
            words=branches.words[None],
            labels=branches.labels[None],
            kind=branches.kind[None],
            evident=branches.evident[None],
        )

    def _film(self, since_s: Sequence[float], num_frames: int) -> VideoSpan:
        """The clip as it is once so many frames were seen."""
        times = grid_times(since_s[:num_frames:2], self._tokens_per_second)
        return VideoSpan(times, self._shape.rows, self._shape.columns)

    def _ids(self, question: Question) -> tuple[list[int], list[int]]:
        """What a fork would be fed, and the answer to it with its end."""
        prompt = clip_question(self._special, self._words.encode(question.text))
        return prompt, [*self._words.encode(question.answer), self._special.im_end]


class _Branches:
    """All that stands behind a clip, filled from its beginning."""

    def __init__(self, shape: Shape, most: int) -> None:
        """Room for so many questions."""
        self._shape, self._num_words, self._num_questions = shape, 0, 0
        self._held: list[int] = []
        self.kind = np.full(most, -1, dtype=np.int32)
        self.evident = np.zeros((most, shape.num_grids), dtype=np.bool_)
        self.rows = np.zeros((3, shape.num_branch), dtype=np.int64)
        self.until = np.zeros(shape.num_branch, dtype=np.int32)
        self.moment = np.full(shape.num_branch, _PADDING, dtype=np.int32)
        self.question = np.full(shape.num_branch, _PADDING, dtype=np.int32)
        self.words = np.zeros(shape.num_words, dtype=np.int32)
        self.labels = np.full(shape.num_words, NOTHING, dtype=np.int32)

    def hold(self, moment: int, film: VideoSpan) -> None:
        """The last grid of the film, for this moment alone."""
        assert moment % 2, "only an odd frame waits"
        size = film.rows * film.columns
        place = slice(len(self._held) * size, (len(self._held) + 1) * size)
        self._held.append(moment)
        own = VideoSpan(film.times[-1:], film.rows, film.columns)
        self._write(place, moment, positions([own], self._shape.num_opening).rows, _SHARED)

    def ask(self, moment: int, film: VideoSpan, ids: tuple[list[int], list[int]], question: Question) -> None:
        """A question and its answer after the film, where there is room."""
        prompt, answer = ids
        inputs = [*prompt, *answer[:-1]]
        if self._num_words + len(inputs) > len(self.words):
            return
        start = self._shape.num_opening + film.extent
        words = slice(self._num_words, self._num_words + len(inputs))
        held = len(self.until) - len(self.words)
        place = slice(held + words.start, held + words.stop)
        self._write(place, moment, positions([Text(len(inputs))], start).rows, self._num_questions)
        self.words[words] = inputs
        self.labels[words.stop - len(answer) : words.stop] = answer
        self._num_words = words.stop
        self.kind[self._num_questions] = KINDS.index(question.kind)
        self.evident[self._num_questions, [self._grid_of(frame, moment) for frame in question.moments]] = True
        self._num_questions += 1

    def _grid_of(self, frame: int, moment: int) -> int:
        """The one that shows a frame to those who ask at this moment."""
        is_waiting = frame == moment - 1 and moment % 2
        return self._shape.num_frames // 2 + self._held.index(moment) if is_waiting else frame // 2

    def _write(self, place: slice, moment: int, rows: np.ndarray, question: int) -> None:
        self.rows[:, place] = rows
        self.until[place] = self._shape.num_opening + moment // 2 * self._shape.rows * self._shape.columns
        self.moment[place], self.question[place] = moment, question


def together(clips: Sequence[Packed]) -> Packed:
    """Several as one batch."""
    return Packed(
        grid_frames=np.concatenate([clip.grid_frames for clip in clips]),
        rows=np.concatenate([clip.rows for clip in clips]),
        until=np.concatenate([clip.until for clip in clips]),
        moment=np.concatenate([clip.moment for clip in clips]),
        question=np.concatenate([clip.question for clip in clips]),
        words=np.concatenate([clip.words for clip in clips]),
        labels=np.concatenate([clip.labels for clip in clips]),
        kind=np.concatenate([clip.kind for clip in clips]),
        evident=np.concatenate([clip.evident for clip in clips]),
    )
