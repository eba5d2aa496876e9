"""The public session of questions: pictures in, questions at any time, answers with the moments they attended to."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from longtake.api.arguments import checked_arguments, memory_bytes
from longtake.api.models import load_language_model, require_same_device
from longtake.api.pictures import Picture, as_pictures, as_rgb, as_text, missing_time, time_of
from longtake.api.single import Single
from longtake.attention.backend import Backend
from longtake.attention.choose import backend_named
from longtake.errors import InputError, SettingError
from longtake.hub.load import familiarity_of
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.memory.change import Part
from longtake.memory.policy import Segment
from longtake.memory.registry import segment_policy_named
from longtake.memory.saved import SavedTensors, TensorFile
from longtake.runtime import dialogue
from longtake.runtime.answers import Answer, Choice, DialogueInfo
from longtake.runtime.execution import AUTO, choose_execution
from longtake.weights.familiarity import Familiarity

_QUESTION_TOKENS = 1024
"""Room for a question, and for a last frame without a partner, beside that of its answer."""
_MAX_TOKENS = 64


class DialogueSession(Single):
    """One video and what is asked about it.

        with longtake.DialogueSession.from_pretrained("micro-vqa", memory="100MB") as chat:
            for frame in longtake.open_video("world:9?frames=60", fps=2):
                chat.see(frame)
            print(chat.ask("Have you seen a red ball?").text)

    Pictures come from one thread; questions may come from many, meanwhile. What is refused leaves it as it was.
    """

    def __init__(self, session: dialogue.DialogueSession, *, max_tokens: int = _MAX_TOKENS) -> None:
        """Prefer `from_pretrained`, which takes names."""
        self._session, self._max_tokens = session, max_tokens

    @classmethod
    @checked_arguments
    def from_pretrained(
        cls,
        model: str | Path | LanguageModel,
        *,
        memory: str | int = "512MB",
        policy: str = "window",
        size: int | None = None,
        max_tokens: int = _MAX_TOKENS,
        reserve_tokens: int = 0,
        device: str = AUTO,
        precision: str = AUTO,
        backend: str = AUTO,
    ) -> "DialogueSession":
        """A session on a model by name, folder or as `load_language_model` gave it; keywords as of `longtake ask`.

        `policy` says what stays when the memory is full: window, thinned or novel. A picture is made smaller to have at
        most the pixels of a square of side `size`. `max_tokens` is the longest answer that room is kept for.
        `reserve_tokens` of the memory are left free for what a session and its forks see side by side.
        """
        budget_bytes, retaining = memory_bytes(memory), segment_policy_named(policy)
        if max_tokens < 1 or reserve_tokens < 0:
            raise SettingError(
                "Expected max_tokens of 1 or more and reserve_tokens of 0 or more, but got "
                f"{max_tokens} and {reserve_tokens}."
            )
        language, named = _loaded(model, device, precision, backend)
        session = dialogue.DialogueSession(
            language if size is None else _with_size(language, size),
            budget_bytes=budget_bytes,
            retaining=retaining,
            answer_tokens=_QUESTION_TOKENS + max_tokens + reserve_tokens,
            backend=named,
            familiarity=None if isinstance(model, LanguageModel) else familiarity_of(model),
        )
        return cls(session, max_tokens=max_tokens)

    def judge_by(self, familiarity: Familiarity | None) -> None:
        """Let these statistics say `unlikeness`, of a model that was given as it is and not by its name."""
        self._session.judge_by(familiarity)

    @property
    def num_judged(self) -> int:
        """Pairs of frames, of the first so many, by which `unlikeness` is judged."""
        return self._session.num_judged

    @property
    def unlikeness(self) -> float | None:
        """How far the video is from what the model was trained on; above 1, it is unlike that. None where unknown."""
        return self._session.unlikeness

    def see(
        self,
        pictures: Picture | Sequence[Picture],
        timestamps_s: float | Sequence[float] | None = None,
        *,
        patience_s: float = 0.0,
    ) -> None:
        """Take one picture or several of one size; those that do not know their time need timestamps, in seconds.

        Where questions under way still read what should leave a full memory, they are waited for up to `patience_s`.
        """
        listed = as_pictures(pictures)
        times_s = _times(listed, timestamps_s)
        images = [as_rgb(picture) for picture in listed]
        sizes = {image.shape[:2] for image in images}
        if len(sizes) > 1:
            raise InputError(
                f"Expected pictures of one size, but got {', '.join(sorted(as_text(size) for size in sizes))}."
            )
        frames = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
        self._session.see(frames, times_s, patience_s=patience_s)

    def _writing(self) -> AbstractContextManager[object]:
        """Hold it for a `_look` and the change that it is a part of."""
        return self._session.writing()

    def _look(self, picture: Picture, time_s: float) -> AbstractContextManager[Sequence[Part]]:
        """What `see` does to a picture, before the session has changed: parts of the change by which it has seen it."""
        frame = torch.from_numpy(np.ascontiguousarray(as_rgb(picture))).permute(2, 0, 1).contiguous()
        return self._session.look(frame, time_s)

    @checked_arguments
    def ask(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None, remember: bool = False
    ) -> Answer:
        """The whole answer; `remember` keeps question and answer in the conversation.

            answer = chat.ask("Have you seen a red ball?")
            print(answer.text, answer.evidence)

        Temperature 0 always takes the likeliest word.
        """
        return self._session.ask(question, self._sampling(temperature, max_tokens), remember=remember)

    @checked_arguments
    def ask_stream(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None, remember: bool = False
    ) -> Iterator[str | Answer]:
        """Text as it comes, and last the answer; leaving early leaves no trace."""
        return self._session.ask_stream(question, self._sampling(temperature, max_tokens), remember=remember)

    @checked_arguments
    def ask_together(
        self, questions: Sequence[str], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> list[Answer]:
        """The whole answers to several questions about the same moment, in their order; none is remembered.

            balls, room = chat.ask_together(["How many balls have you seen?", "Which room are you in now?"])
            print(balls.text, room.text)

        On a GPU they are written side by side, which takes far less time than one after another and rounds other sums.
        A full memory has room for few at once, and writes the rest after them: open the session with `reserve_tokens`
        of the tokens of all questions and answers to have them side by side.
        """
        if isinstance(questions, str):
            raise InputError("Expected a list of questions, but got one; put it into a list, or call ask.")
        return self._session.ask_together(questions, self._sampling(temperature, max_tokens))

    @checked_arguments
    def ask_choice(self, question: str, choices: Sequence[str]) -> list[Choice]:
        """How likely each choice is as the answer, in the order given."""
        return self._session.ask_choice(question, choices)

    def fork(self) -> "DialogueSession":
        """A session that goes on from here on its own; end it with `close`.

        The two share the memory. What either sees from now on takes room of its own until the fork is closed: what is
        free, and in a full memory `reserve_tokens`.
        """
        return DialogueSession(self._session.fork(), max_tokens=self._max_tokens)

    def reset(self) -> None:
        """Forget the video and the conversation."""
        self._session.reset()

    @checked_arguments
    def save(self, path: str | Path) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        self._session.save(Path(path))

    def snapshot(self) -> TensorFile:
        """All that `save` writes, as it is now; its own `save` may be called at any time, in any thread."""
        return self._session.snapshot()

    @classmethod
    @checked_arguments
    def resume(
        cls,
        path: str | Path,
        model: str | Path | LanguageModel,
        *,
        size: int | None = None,
        max_tokens: int = _MAX_TOKENS,
        device: str = AUTO,
        precision: str = AUTO,
        backend: str = AUTO,
    ) -> "DialogueSession":
        """Go on where `save` was called, with the same model.

        The file holds all settings. Only those of earlier versions do not say their `size`: give it if there was one.
        """
        saved = SavedTensors(Path(path))
        saved_pixels = saved.record.get("max_pixels")
        if size is not None and saved_pixels not in (None, size**2):
            raise SettingError(
                f"This dialogue was saved with pictures of at most {saved_pixels} pixels, but got a size of {size}; "
                "leave it out."
            )
        language, named = _loaded(model, device, precision, backend)
        sized = language if size is None else _with_size(language, size)
        session = cls(dialogue.DialogueSession.restored(saved, sized, named), max_tokens=max_tokens)
        session.judge_by(None if isinstance(model, LanguageModel) else familiarity_of(model))
        return session

    def close(self) -> None:
        """End the session and let go of its memory; ending twice is fine."""
        self._session.close()

    def __enter__(self) -> "DialogueSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def info(self) -> DialogueInfo:
        return self._session.info

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Pieces of the video, and turns of the talk, that it remembers and may forget, oldest first."""
        return self._session.state.segments

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, allocated once."""
        return self._session.info.num_bytes

    def _sampling(self, temperature: float, max_tokens: int | None) -> TextSampling:
        return TextSampling(temperature=temperature, max_new_tokens=max_tokens or self._max_tokens)


def _loaded(
    model: str | Path | LanguageModel, device: str, precision: str, backend: str
) -> tuple[LanguageModel, Backend | None]:
    """A model, loaded if it is named, and the backend that is; None for `auto`, which the session resolves.

    A model that is loaded already stays where and as it is.
    """
    if isinstance(model, LanguageModel):
        held = model.network.device.type
        require_same_device(device, held)
        language, execution = model, choose_execution(held, precision, backend)
    else:
        execution = choose_execution(device, precision, backend)
        language = load_language_model(model, device=device, precision=precision)
    return language, None if backend == AUTO else backend_named(execution.backend)


def _with_size(language: LanguageModel, size: int) -> LanguageModel:
    """The same model, shown at most the pixels of a square of this side."""
    pictures = language.picture_format
    if size < pictures.factor:
        raise SettingError(f"Expected a size from {pictures.factor}, the side of one token, but got {size}.")
    limits = replace(pictures, max_pixels=size**2, min_pixels=min(pictures.min_pixels, size**2))
    return replace(language, picture_format=limits)


def _times(pictures: Sequence[Picture], timestamps_s: float | Sequence[float] | None) -> list[float]:
    given: list[Any] = [None] * len(pictures) if timestamps_s is None else _listed(timestamps_s)
    if len(given) != len(pictures):
        raise InputError(f"Expected a time for each of {len(pictures)} pictures, but got {len(given)}.")
    times_s = [time_of(picture, time_s) for picture, time_s in zip(pictures, given, strict=True)]
    if None in times_s:
        raise missing_time(pictures[times_s.index(None)], "see(picture, 0.5)")
    return [time_s for time_s in times_s if time_s is not None]


def _listed(times: Any) -> list[Any]:
    try:
        return list(times)
    except TypeError:  # one number, of whatever kind
        return [times]
