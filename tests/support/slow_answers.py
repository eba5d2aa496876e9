"""Answers found a second time, from a question's words alone: the slow, obvious twin by which questions are checked."""

from longtake.world.question import NUMBERS, PLURALS, SIDES, Phrase, Question, QuestionKind
from longtake.world.things import Sightings, Thing


def answer_of(question: Question, sightings: Sightings, least_pixels: int) -> str | None:
    """The answer where a thing counts as seen from `least_pixels` on; None where there is none.

    Between one pixel and `clear_pixels(sightings)` no line may change the answer of a question that was asked.
    """
    words = question.text.split()
    named = [thing for thing in sightings.things if thing.name in question.text]
    seen_frames = {thing.name: _frames_of(thing, sightings, question.frame, least_pixels) for thing in sightings.things}
    seen = [thing for thing in sightings.things if seen_frames[thing.name]]
    match question.kind:
        case QuestionKind.SEEN:
            return "yes" if any(thing in seen for thing in named) else "no"
        case QuestionKind.COLOUR:
            colours = [str(thing.colour) for thing in seen if thing.kind in words]
            return colours[0] if len(colours) == 1 else None
        case QuestionKind.COUNT:
            return str(sum(PLURALS[thing.kind] in words for thing in seen))
        case QuestionKind.FIRST:
            return _earlier([(seen_frames[thing.name][0], thing.name) for thing in named if thing in seen])
        case QuestionKind.WHERE:
            return _side(named[0], sightings, question.frame) if question.frame in seen_frames[named[0].name] else None
        case QuestionKind.WHEN:
            return _seconds_since(seen_frames[named[0].name], sightings, question.frame)
        case QuestionKind.ROOM if question.text == Phrase.ROOM_NOW:
            return str(sightings.rooms[sightings.room[question.frame]])
        case QuestionKind.ROOM:
            return str(sightings.rooms[named[0].room]) if named[0] in seen else None


def _frames_of(thing: Thing, sightings: Sightings, newest: int, least_pixels: int) -> list[int]:
    pixels = sightings.pixels[: newest + 1, sightings.things.index(thing)].tolist()
    return [frame for frame, count in enumerate(pixels) if count >= least_pixels]


def _earlier(firsts: list[tuple[int, str]]) -> str | None:
    if len(firsts) < 2 or firsts[0][0] == firsts[1][0]:
        return None
    return min(firsts)[1]


def _side(thing: Thing, sightings: Sightings, frame: int) -> str:
    column = sightings.column[frame, sightings.things.index(thing)]
    return SIDES[0] if column < 1 / 3 else SIDES[1] if column < 2 / 3 else SIDES[2]


def _seconds_since(frames: list[int], sightings: Sightings, newest: int) -> str | None:
    if not frames:
        return None
    return NUMBERS[round(float(sightings.timestamp_s[newest] - sightings.timestamp_s[frames[-1]]))]
