"""What to know before a session is trusted: what its models know, and whether the video is like that."""

from collections.abc import Iterator

from longtake.hub.bundled import model_notes, unlike_note
from longtake.server.shelf import SessionRecord, Unlikeness
from longtake.server.spec import SessionSpec
from longtake.server.watchers import Watcher
from longtake.weights.familiarity import CLIP_FRAMES, CLIP_GRIDS


def session_notes(record: SessionRecord) -> list[str]:
    """A sentence each."""
    spec, how_far = record.spec, record.unlikeness.language
    about_answers = _notes_on(spec, spec.language, "longtake serve --language {}", how_far, "its answers")
    return [*map_notes(record), *about_answers]


def map_notes(record: SessionRecord) -> list[str]:
    """Those about its map alone."""
    spec, how_far = record.spec, record.unlikeness.model
    return list(_notes_on(spec, spec.model, "longtake serve --model {}", how_far, "its map"))


def _notes_on(spec: SessionSpec, name: str | None, command: str, how_far: float | None, what: str) -> Iterator[str]:
    if name is None:
        return
    yield from model_notes(name, shows_world=spec.is_world, naming=command)
    if how_far is not None and how_far > 1:
        yield f"{unlike_note(name, command, what).format(f'{how_far:.1f}')}."


def judged(watcher: Watcher, before: Unlikeness, *, has_ended: bool) -> Unlikeness:
    """How far the video is from what each model knows, once enough was seen, or all; what was judged stays."""
    mapping, dialogue = watcher.mapping, watcher.dialogue
    model, language = before.model, before.language
    if model is None and mapping is not None and (has_ended or mapping.num_judged >= CLIP_FRAMES):
        model = mapping.unlikeness
    if language is None and dialogue is not None and (has_ended or dialogue.num_judged >= CLIP_GRIDS):
        language = dialogue.unlikeness
    return Unlikeness(model=model, language=language)
