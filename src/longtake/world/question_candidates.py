"""All questions about a walk that have one answer, wherever one draws the line between seen and not.

A line anywhere from one pixel to a clear sighting must give the same answer, each faint sighting read either way;
where it would not, or where the answer hangs on a hair (near a border, within a blink), the question is not asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtake.world.question import NAMES, NUMBERS, PLURALS, SIDES, Phrase, Question, QuestionKind, article
from longtake.world.things import Colour, Kind, Sightings
from longtake.world.visibility import Visibility

MOST_COUNTED = 5
LONGEST_AGO_S = 20
FIRST_MARGIN_S = 0.5
"""Between the first sightings of two things of which one came first."""
SIDE_MARGIN = 0.05
"""Of the image's width, from the borders between its thirds."""
WHEN_MARGIN_S = 0.1
"""From the half second at which rounding turns."""
SETTLED_S = 1.0
"""How long the camera is in a room before it is asked about it."""

_PAIRS = 8
"""Pairs of things tried for which came first; all of them would be hundreds."""
_ROOM_NOW_SHARE = 0.25
"""Of the questions about rooms, those about your own."""
_SEEN_TEXTS = {name: Phrase.SEEN.format(article=article(name), name=name) for name in NAMES}
_COLOURS = tuple(str(colour) for colour in Colour)


def candidates(sightings: Sightings, rng: np.random.Generator) -> dict[QuestionKind, list[Question]]:
    """Questions of every kind that can be asked at the newest frame, a fair draw where they are many; maybe none."""
    if not len(sightings):
        return {kind: [] for kind in QuestionKind}
    walk = _Walk.of(sightings)
    own_room = rng.random() < _ROOM_NOW_SHARE
    asked = {
        QuestionKind.SEEN: _ask_seen(walk, rng),
        QuestionKind.COLOUR: _ask_colour(walk),
        QuestionKind.COUNT: _ask_count(walk),
        QuestionKind.FIRST: _ask_first(walk, rng),
        QuestionKind.WHERE: _ask_where(walk),
        QuestionKind.WHEN: _ask_when(walk),
        QuestionKind.ROOM: _ask_room_now(walk) if own_room else _ask_room_of_thing(walk),
    }
    return {kind: [question for question in asked[kind] if len(question.choices) > 1] for kind in QuestionKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """A walk up to the newest frame, and its things by how well they were seen."""

    sightings: Sightings
    watched: Visibility
    names: list[str]
    clear: list[int]
    """Things seen clearly at least once."""
    visible: list[int]
    """Things of which at least one pixel was seen at least once."""

    @classmethod
    def of(cls, sightings: Sightings) -> "_Walk":
        watched = Visibility.of(sightings)
        return cls(
            sightings=sightings,
            watched=watched,
            names=[thing.name for thing in sightings.things],
            clear=np.flatnonzero(watched.last_clear >= 0).tolist(),
            visible=np.flatnonzero(watched.last_visible >= 0).tolist(),
        )

    @property
    def newest(self) -> int:
        return len(self.sightings) - 1

    def question(
        self, kind: QuestionKind, text: str, answer: str, *, choices: tuple[str, ...], evidence: tuple[int, ...]
    ) -> Question:
        newest = self.newest
        return Question(
            kind=kind,
            text=text,
            answer=answer,
            choices=choices,
            frame=newest,
            timestamp_s=float(self.sightings.timestamp_s[newest]),
            evidence=evidence,
        )

    def of_kind(self, kind: Kind) -> list[int] | None:
        """The things of a kind that were seen clearly; None if another was seen faintly."""
        clear = [index for index in self.clear if self.sightings.things[index].kind is kind]
        visible = [index for index in self.visible if self.sightings.things[index].kind is kind]
        return clear if clear == visible else None


def _ask_seen(walk: _Walk, rng: np.random.Generator) -> Iterator[Question]:
    """As many names not seen as seen, or how much a walk has shown would tell the answer."""
    largest = walk.sightings.pixels.argmax(axis=0).tolist()
    evidence = {walk.names[index]: (largest[index],) for index in walk.clear}
    visible = {walk.names[index] for index in walk.visible}
    unseen = rng.permutation([name for name in NAMES if name not in visible])[: len(evidence)]
    for name in (*evidence, *unseen.tolist()):
        answer, frames = ("yes", evidence[name]) if name in evidence else ("no", ())
        yield walk.question(QuestionKind.SEEN, _SEEN_TEXTS[name], answer, choices=("yes", "no"), evidence=frames)


def _ask_colour(walk: _Walk) -> Iterator[Question]:
    for kind in Kind:
        seen = walk.of_kind(kind)
        if seen is not None and len(seen) == 1:
            text, answer = Phrase.COLOUR.format(kind=kind), str(walk.sightings.things[seen[0]].colour)
            frame = int(walk.sightings.pixels[:, seen[0]].argmax())
            yield walk.question(QuestionKind.COLOUR, text, answer, choices=_COLOURS, evidence=(frame,))


def _ask_count(walk: _Walk) -> Iterator[Question]:
    first_clear = walk.watched.first_clear.tolist()
    for kind in Kind:
        seen = walk.of_kind(kind)
        if seen is not None and len(seen) <= MOST_COUNTED:
            text, choices = Phrase.COUNT.format(kinds=PLURALS[kind]), NUMBERS[: MOST_COUNTED + 1]
            frames = tuple(sorted({first_clear[index] for index in seen}))
            yield walk.question(QuestionKind.COUNT, text, NUMBERS[len(seen)], choices=choices, evidence=frames)


def _ask_first(walk: _Walk, rng: np.random.Generator) -> Iterator[Question]:
    """Both ways of naming each pair, so that neither place need be right more often."""
    time_s = walk.sightings.timestamp_s
    surely_seen_s = time_s[walk.watched.first_clear[walk.clear]]
    maybe_seen_s = time_s[walk.watched.first_visible[walk.clear]]
    pairs = np.argwhere(surely_seen_s[:, None] + FIRST_MARGIN_S <= maybe_seen_s[None, :])
    for early, late in rng.permutation(pairs)[:_PAIRS].tolist():
        first, second = walk.clear[early], walk.clear[late]
        evidence = (int(walk.watched.first_clear[first]), int(walk.watched.first_clear[second]))
        names = (walk.names[first], walk.names[second])
        for choices in (names, names[::-1]):
            text = Phrase.FIRST.format(former=choices[0], latter=choices[1])
            yield walk.question(QuestionKind.FIRST, text, names[0], choices=choices, evidence=evidence)


def _ask_where(walk: _Walk) -> Iterator[Question]:
    newest = walk.newest
    for index in np.flatnonzero(walk.watched.clear[newest]).tolist():
        column = float(walk.sightings.column[newest, index])
        if min(abs(column - 1 / 3), abs(column - 2 / 3)) >= SIDE_MARGIN:
            text, answer = Phrase.WHERE.format(name=walk.names[index]), SIDES[min(int(3 * column), 2)]
            yield walk.question(QuestionKind.WHERE, text, answer, choices=SIDES, evidence=(newest,))


def _ask_when(walk: _Walk) -> Iterator[Question]:
    time_s = walk.sightings.timestamp_s
    last_clear = walk.watched.last_clear[walk.clear]
    surely_s = time_s[-1] - time_s[last_clear]
    maybe_s = time_s[-1] - time_s[walk.watched.last_visible[walk.clear]]
    whole_s = np.rint(surely_s).astype(int)
    off_s = np.maximum(abs(surely_s - whole_s), abs(maybe_s - whole_s))
    choices = NUMBERS[: 1 + min(LONGEST_AGO_S, int(np.rint(time_s[-1] - time_s[0])))]
    for place in np.flatnonzero((off_s <= 0.5 - WHEN_MARGIN_S) & (whole_s <= LONGEST_AGO_S)).tolist():
        text, answer = Phrase.WHEN.format(name=walk.names[walk.clear[place]]), NUMBERS[whole_s[place]]
        yield walk.question(QuestionKind.WHEN, text, answer, choices=choices, evidence=(int(last_clear[place]),))


def _ask_room_of_thing(walk: _Walk) -> Iterator[Question]:
    """Only for things seen from within their room: through a door one cannot tell how many rooms away they are."""
    sightings, choices = walk.sightings, tuple(map(str, walk.sightings.rooms))
    stands_in = np.array([thing.room for thing in sightings.things], dtype=int)
    shown = walk.watched.clear & (sightings.room[:, None] == stands_in)
    largest = np.where(shown, sightings.pixels, 0).argmax(axis=0).tolist()
    for index in np.flatnonzero(shown.any(axis=0)).tolist():
        text, answer = Phrase.ROOM_OF_THING.format(name=walk.names[index]), choices[stands_in[index]]
        yield walk.question(QuestionKind.ROOM, text, answer, choices=choices, evidence=(largest[index],))


def _ask_room_now(walk: _Walk) -> Iterator[Question]:
    """Only well inside a room, and looking at what stands there rather than through a door."""
    sightings, newest = walk.sightings, walk.newest
    here = int(sightings.room[newest])
    lately = sightings.timestamp_s > sightings.timestamp_s[newest] - SETTLED_S
    shown_rooms = {sightings.things[index].room for index in np.flatnonzero(walk.watched.clear[newest])}
    if shown_rooms == {here} and (sightings.room[lately] == here).all():
        choices = tuple(map(str, sightings.rooms))
        yield walk.question(QuestionKind.ROOM, str(Phrase.ROOM_NOW), choices[here], choices=choices, evidence=(newest,))
