"""Picks questions over many walks so evenly that neither the commonest answer nor a question's words give it away."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from longtake.errors import SettingError
from longtake.world.question import Question, QuestionKind
from longtake.world.question_candidates import candidates
from longtake.world.things import Sightings

EXCESS_SHARE = 0.1
"""By how much an answer's share of a kind's questions may surpass uniform chance."""
_HEAD_START = 4
"""Questions by which it may surpass it besides, so that a quiz can begin."""
_JITTER = 8.0
"""Questions by which an answer may lead and still be drawn: in strict turns one answer would betray the next."""


class Balance:
    """How often each answer was asked for, in all and for the very same words."""

    def __init__(self) -> None:
        self._by_kind: dict[QuestionKind, Counter[str]] = {kind: Counter() for kind in QuestionKind}
        self._by_text: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._guessed: defaultdict[QuestionKind, float] = defaultdict(float)

    def count(self, question: Question) -> None:
        """Takes an asked question into account."""
        answer = balanced_answer(question)
        self._by_kind[question.kind][answer] += 1
        self._by_text[question.text][answer] += 1
        self._guessed[question.kind] += 1 / len(question.choices)

    def num_asked(self, kind: QuestionKind) -> int:
        return self._by_kind[kind].total()

    def num_answered(self, question: Question) -> int:
        """How many questions of this kind had this answer."""
        return self._by_kind[question.kind][balanced_answer(question)]

    def allows(self, question: Question) -> bool:
        """Whether its answer does not become too common, by chance among its choices and among all answers so far."""
        answers = {*self._by_kind[question.kind], balanced_answer(question)}
        num_asked = self.num_asked(question.kind) + 1
        expected = min(self._guessed[question.kind] + 1 / len(question.choices), num_asked / len(answers))
        return self.num_answered(question) + 1 <= expected + EXCESS_SHARE * num_asked + _HEAD_START

    def lead(self, question: Question) -> float:
        """How much more often than its share these words had this answer."""
        answers = self._by_text[question.text]
        return answers[balanced_answer(question)] - answers.total() / len(question.choices)


def balanced_answer(question: Question) -> str:
    """What must come up evenly: the answer, or which of two things it is, by their order in the question."""
    if question.kind is QuestionKind.FIRST:
        return str(question.choices.index(question.answer))
    return question.answer


class QuestionSampler:
    """Asks about one walk after another; each question is meant to be asked by itself, knowing no other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._balance = Balance()

    def ask(self, sightings: Sightings, num_questions: int) -> tuple[Question, ...]:
        """Different questions at the newest frame, kinds in turn; fewer where more would upset the balance."""
        if num_questions < 0:
            raise SettingError(f"Expected 0 questions or more for a walk, but got {num_questions}; choose another.")
        left = candidates(sightings, self._rng)
        asked: list[Question] = []
        while left and len(asked) < num_questions:
            kind = self._next_kind(left.keys(), asked)
            question = self._choose(left[kind])
            if question is None:
                del left[kind]
                continue
            self._balance.count(question)
            asked.append(question)
            subject = _subject(question)
            left[kind] = [other for other in left[kind] if _subject(other) != subject]
        return tuple(asked)

    def _next_kind(self, kinds: Iterable[QuestionKind], asked: Sequence[Question]) -> QuestionKind:
        """The one least asked about this walk, then in all."""
        here = Counter(question.kind for question in asked)
        return min(kinds, key=lambda kind: (here[kind], self._balance.num_asked(kind) + self._jitter()))

    def _choose(self, questions: Sequence[Question]) -> Question | None:
        """One whose answer was rarest so far, in words that had this answer least."""
        by_answer: dict[str, list[Question]] = {}
        for question in questions:
            by_answer.setdefault(balanced_answer(question), []).append(question)
        alike = [group for group in by_answer.values() if self._balance.allows(group[0])]
        if not alike:
            return None
        rarest = min(alike, key=lambda group: self._balance.num_answered(group[0]) + self._jitter())
        shuffled: list[Question] = [rarest[place] for place in self._rng.permutation(len(rarest)).tolist()]
        return min(shuffled, key=self._balance.lead)

    def _jitter(self) -> float:
        return float(self._rng.uniform(0, _JITTER))


def _subject(question: Question) -> str:
    """What a question is about, whichever of two things it names first."""
    return " ".join(sorted(question.choices)) if question.kind is QuestionKind.FIRST else question.text
