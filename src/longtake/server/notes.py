"""What to know before a session is trusted: what its models know, and whether the video is like that."""

from longtake.hub.bundled import model_notes, unlike_note
from longtake.server.shelf import SessionRecord, Unlikeness
from longtake.server.watchers import Watcher
from longtake.weights.familiarity import CLIP_FRAMES, CLIP_GRIDS


def session_notes(record: SessionRecord) -> list[str]:
    """A sentence each."""
    spec, unlikeness = record.spec, record.unlikeness
    parts = (
        (spec.model, "longtake serve --model {}", unlikeness.model, "its map"),
        (spec.language, "longtake serve --language {}", unlikeness.language, "its answers"),
    )
    notes: list[str] = []
    for name, command, how_far, what in parts:
        if name is None:
            continue
        notes += model_notes(name, shows_world=spec.is_world, naming=command)
        if how_far is not None and how_far > 1:
            notes.append(f"{unlike_note(name, command, what).format(f'{how_far:.1f}')}.")
    return notes


def judged(watcher: Watcher, before: Unlikeness, *, has_ended: bool) -> Unlikeness:
    """How far the video is from what each model knows, once enough was seen, or all; what was judged stays."""
    mapping, dialogue = watcher.mapping, watcher.dialogue
    model, language = before.model, before.language
    if model is None and mapping is not None and (has_ended or mapping.num_judged >= CLIP_FRAMES):
        model = mapping.unlikeness
    if language is None and dialogue is not None and (has_ended or dialogue.num_judged >= CLIP_GRIDS):
        language = dialogue.unlikeness
    return Unlikeness(model=model, language=language)
