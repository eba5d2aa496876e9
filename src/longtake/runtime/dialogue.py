"""The session of questions about one video: frames go in as they come, a question pays for its own tokens alone.

Frames belong to one clip that stays open (`language/qwen2_5_vl.py`), so that what is remembered is the prompt a plain
model would get for the video so far. A question closes the clip on a fork, which is dropped with the answer or, to be
remembered, becomes the session. Two other formats give every call of `see` a turn of its own.
"""

import copy
import math
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.causal import AttentionRecorder
from longtake.attention.choose import backend_named, recorded_backend
from longtake.attention.triton import TritonBackend
from longtake.errors import InputError, UnknownWordsError
from longtake.language.dialogue_state import DialogueState, Portion, portions, with_frames
from longtake.language.load import LanguageModel
from longtake.language.positions import Text
from longtake.language.prompt_builder import Features, PromptBuilder, StreamFormat, TokenInputs, grid_descriptors
from longtake.language.sampling import TextSampling
from longtake.memory.change import Changing, Part, change_together
from longtake.memory.policies.lockstep import Window
from longtake.memory.policy import SegmentPolicy
from longtake.memory.registry import policy_record, segment_policy_of
from longtake.memory.saved import SavedTensors, TensorFile
from longtake.runtime.answers import Answer, Choice, DialogueInfo, LetterChoice, evidence
from longtake.runtime.dialogue_file import DialogueRecord, StateRecord, state_pieces
from longtake.runtime.dialogue_memory import DialogueMemory, Feed
from longtake.runtime.execution import fastest_backend, portable_by
from longtake.runtime.generation import (
    Generated,
    Writing,
    by_letters,
    by_likelihood,
    equally_long,
    generate,
    offered_by_letters,
    require_choices,
)
from longtake.runtime.record import fingerprint
from longtake.runtime.recorded_reading import recorded_reader, why_reading_unrecorded
from longtake.weights.familiarity import CLIP_GRIDS, FEWEST_GRIDS, UNJUDGED, Familiarity, Judged

SYSTEM = "You are a helpful assistant."
_GREEDY = TextSampling()


class DialogueSession:
    """One video and what is asked about it. Frames come from one thread; questions may come from many, meanwhile.

    session = DialogueSession(load_language_model("micro-vqa"), budget_bytes=100_000_000)
    session.see(frames, times_s)
    print(session.ask("have you seen a red ball?"))
    """

    def __init__(
        self,
        language: LanguageModel,
        *,
        budget_bytes: int,
        system: str = SYSTEM,
        stream_format: StreamFormat = StreamFormat.OPEN_CLIP,
        retaining: SegmentPolicy | None = None,
        answer_tokens: int = 1024,
        backend: Backend | None = None,
        familiarity: Familiarity | None = None,
    ) -> None:
        """A session with a memory allocated here, of which `answer_tokens` are for all questions under way.

        `retaining` is the policy of what is evicted when the rest is full; by default the oldest frames. The backend is
        by default the fastest for the model where it is. `familiarity` is what is known of the model's training.
        """
        self._language, self._network = language, language.network
        self._settings: dict[str, Any] = {
            "budget_bytes": budget_bytes,
            "system": system,
            "stream_format": stream_format,
            "answer_tokens": answer_tokens,
        }
        self._format = stream_format
        backend = backend or backend_named(fastest_backend(self._network.device, language.model.dtype))
        reader = recorded_reader(language) if isinstance(backend, TritonBackend) else None
        see = None if reader is None else reader.see
        self._prompts = PromptBuilder(language, self._network, system, stream_format, see)
        self._memory = DialogueMemory.allocate(
            language,
            self._network,
            backend=backend,
            reader=reader,
            policy=retaining or Window.for_dialogue(),
            budget_bytes=budget_bytes,
            answer_tokens=answer_tokens,
        )
        self._seeing_s = 0.0
        self._weights = cache(partial(fingerprint, language.model))  # looked for once
        self._familiarity, self._judged = familiarity, Changing(UNJUDGED)

    def see(
        self, frames: UInt8[Tensor, "frames 3 height width"], timestamps_s: Sequence[float], *, patience_s: float = 0.0
    ) -> None:
        """Take more frames. One without a partner waits for it; frames that are refused leave the session as it was.

        Of many frames those that found room stay. What is evicted stays in memory for questions under way: up to
        `patience_s` these are waited for.
        """
        started = time.perf_counter()
        with self._memory.writing():
            for look in self._looks(frames, timestamps_s, patience_s):
                with look as parts:
                    change_together(*parts)
        self._seeing_s += time.perf_counter() - started

    def writing(self) -> AbstractContextManager[object]:
        """Hold it for a `look` and the change that it is a part of."""
        return self._memory.writing()

    @contextmanager
    def look(self, frame: UInt8[Tensor, "3 height width"], timestamp_s: float) -> Iterator[Sequence[Part]]:
        """Look at a frame as `see` does, before the session has changed: parts of the change by which it has seen it.

        Leaving without that change leaves no trace.
        """
        started = time.perf_counter()
        (only,) = self._looks(frame.unsqueeze(0), [timestamp_s], patience_s=0.0)
        with only as parts:
            self._seeing_s += time.perf_counter() - started
            yield parts

    def ask(self, question: str, sampling: TextSampling = _GREEDY, *, remember: bool = False) -> Answer:
        """The whole answer; with `remember` question and answer stay in the conversation."""
        *_, answer = self.ask_stream(question, sampling, remember=remember)
        assert isinstance(answer, Answer)
        return answer

    def ask_stream(
        self, question: str, sampling: TextSampling = _GREEDY, *, remember: bool = False
    ) -> Iterator[str | Answer]:
        """Text as it comes, whole characters only, and last the answer; leaving early leaves no trace.

        A question outside of the model's grammar is answered with what is inside of it, and never remembered.
        """
        started = time.perf_counter()
        self._memory.require_open()
        try:
            ids = self._question_ids(question)
        except UnknownWordsError as refusal:
            yield refusal.brief
            yield Answer.refused(refusal, self.state.last_s, time.perf_counter() - started)
            return
        with self._memory.fork() as fork:
            forked = time.perf_counter()
            asking = self._asking(fork, ids, sampling)

            def feed(token_id: int) -> Float[Tensor, " vocabulary"]:
                return self._logits_of([asking.feed(self._prompts.text_tokens(fork.state, [token_id]))])[0]

            first = self._logits_of([asking.feed(asking.asked)])[0]
            for piece in generate(asking.writing, first, feed):
                if isinstance(piece, str):
                    yield piece
                    continue
                if remember:
                    fork.feed(self._prompts.answer_end(fork.state, piece.ids[piece.num_fed :]))
                    fork.commit_fork()
                yield asking.answer(piece, started, forked)

    def ask_together(self, questions: Sequence[str], sampling: TextSampling = _GREEDY) -> list[Answer]:
        """The whole answers to several questions about the same moment, written side by side; none is remembered.

        On a GPU they share what costs most, reading the past and the weights, so that all come in little more time than
        one; other sums are rounded than for each alone.
        """
        return [piece for piece in self.ask_together_stream(questions, sampling) if isinstance(piece, Answer)]

    def ask_together_stream(
        self, questions: Sequence[str], sampling: TextSampling = _GREEDY
    ) -> Generator[str | Answer, None, None]:
        """The same in the order of the questions: text of an answer as it comes, then the answer, then the next one's.

        What a later one says meanwhile waits for its turn. As many are written side by side as there is room for; where
        nothing would be shared it is one after another. Of a question that is refused only the answer comes. Leaving
        early leaves no trace.
        """
        started = time.perf_counter()
        self._memory.require_open()
        asked = [self._ids_or_refusal(question) for question in questions]
        written = self._written([ids for ids in asked if not isinstance(ids, Answer)], sampling, started)
        with closing(written):
            for each in asked:
                if isinstance(each, Answer):
                    yield each
                else:
                    yield from _up_to_answer(written)

    def _ids_or_refusal(self, question: str) -> tuple[int, ...] | Answer:
        started = time.perf_counter()
        try:
            return self._question_ids(question)
        except UnknownWordsError as refusal:
            return Answer.refused(refusal, self.state.last_s, time.perf_counter() - started)

    def _written(
        self, questions: Sequence[Sequence[int]], sampling: TextSampling, started_s: float
    ) -> Generator[str | Answer, None, None]:
        """Text and answer of each, in order."""
        with ExitStack() as stack:
            with self._memory.lock:  # so that all forks are of one moment
                forks = [stack.enter_context(self._memory.fork()) for _ in questions]
            forked_s = time.perf_counter()
            waiting = [self._asking(fork, ids, sampling) for fork, ids in zip(forks, questions, strict=True)]
            while waiting:
                beside = waiting[: self._num_side_by_side(waiting)]
                steps = self._write_side_by_side(beside, sampling)
                for each in beside:
                    yield from each.writing.told(steps)
                    yield each.answer(each.writing.written(), started_s, forked_s)
                    each.fork.close()
                waiting = waiting[len(beside) :]
                started_s = forked_s = time.perf_counter()

    def _num_side_by_side(self, waiting: "Sequence[_Asking]") -> int:
        """How many of these, the first ones, find room now; one at least, and one where passes share nothing."""
        if not self._memory.shares_passes:
            return 1
        needed = np.cumsum([each.asked.num_tokens + each.writing.num_left for each in waiting])
        return max(1, int(np.sum(needed <= self._memory.use().free)))

    def _write_side_by_side(self, under_way: "Sequence[_Asking]", sampling: TextSampling) -> Iterator[None]:
        """A token more of each answer that has not ended, step by step."""
        inputs = [each.asked for each in under_way]
        while under_way:
            logits = self._logits_of([each.feed(coming) for each, coming in zip(under_way, inputs, strict=True)])
            generators = [each.writing.generator for each in under_way]
            chosen = sampling.choose_each(logits, generators, self._language.suppressed_ids)
            for each, token in zip(under_way, chosen, strict=True):
                each.writing.add(token)
            yield
            under_way = [each for each in under_way if not each.writing.has_ended]
            inputs = self._next_words(under_way)

    def _next_words(self, under_way: "Sequence[_Asking]") -> list[TokenInputs]:
        """Of answers the tokens to be fed back."""
        if not under_way:
            return []
        ids = [each.writing.next_fed() for each in under_way]
        return self._prompts.next_words([each.fork.state for each in under_way], ids)

    def ask_choice(self, question: str, choices: Sequence[str]) -> list[Choice]:
        """How likely each choice is as the answer, all scored in one pass over the same past; in the order given."""
        ids, choice_ids = self.require_askable(question, choices)
        with self._memory.fork() as fork:
            first = self._next_logits(fork, self._asked(fork, ids)).log_softmax(-1)
            later = self._later_log_likelihoods(fork, equally_long(choice_ids))
        return by_likelihood(choices, choice_ids, first, later)

    def ask_letter(self, question: str, choices: Sequence[str]) -> list[LetterChoice]:
        """The same with the choices in the question, as A., B. and so on: which letter comes first, in one pass."""
        require_choices(choices)
        _require_words(question)
        ids = self._language.choice_ids(offered_by_letters(question, choices))
        with self._memory.fork() as fork:
            logits = self._next_logits(fork, self._asked(fork, ids))
        best = [logits[self._first_ids(letter)].max() for letter in ascii_uppercase[: len(choices)]]
        return by_letters(choices, torch.stack(best))

    def require_askable(
        self, question: str, choices: Sequence[str]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Tokens of a question and of its choices; refused in a sentence where the model does not know them."""
        require_choices(choices)
        for choice in choices:
            _require_words(choice)
        return self._question_ids(question), tuple(map(self._language.choice_ids, choices))

    def append(self, inputs: TokenInputs) -> Float[Tensor, "1 tokens width"]:
        """Any tokens as the next of the conversation, made from its `state` as it is now (`prompt_builder`).

        Their segments may be evicted later, as frames are, and older ones are evicted for them. Returned is the hidden
        state of each token, for `Network.logits`.
        """
        with self._memory.writing(), self._memory.append(lambda _: inputs) as read:
            read.take()
        return read.hidden

    def move_to(self, next_position: int) -> None:
        """Let the next token stand at this position instead of right after the last one."""
        with self._memory.writing():
            change_together(self._memory.hold(replace(self._memory.state, next_position=next_position)))

    def fork(self) -> "DialogueSession":
        """A session that goes on from here on its own: it sees and is asked, and leaves no trace in this one.

        What both remember is stored once. It ends with `close`, a `with` block, or the object.
        """
        twin = copy.copy(self)
        twin._memory, twin._judged = self._memory.fork(), Changing(self._judged.value)
        return twin

    def commit_fork(self) -> None:
        """End this fork and let the session it was made from go on from here, if that has not moved on meanwhile."""
        self._memory.commit_fork()

    def reset(self) -> None:
        """Forget the video and the conversation."""
        with self._memory.writing():
            self._memory.clear()
            self._judged.become(UNJUDGED)

    @property
    def num_judged(self) -> int:
        """Pairs of frames, of the first so many, by which `unlikeness` is judged."""
        return self._judged.value.number

    def judge_by(self, familiarity: Familiarity | None) -> None:
        """Let these statistics say how far the video is from what the model knows; best before it sees anything."""
        self._familiarity = familiarity

    @property
    def unlikeness(self) -> float | None:
        """How far the video is from what the model was trained on; above 1, it is unlike that.

        None before two pairs of frames were seen, and for a model of whose training nothing is known.
        """
        judged = self._judged.value
        if self._familiarity is None or judged.number < FEWEST_GRIDS:
            return None
        return self._familiarity.unlikeness(judged.distance_sum / judged.number)

    @property
    def state(self) -> DialogueState:
        """All that the next token depends on beside what is in memory."""
        return self._memory.state

    @property
    def why_portable(self) -> str | None:
        """Why frames and questions go through the library's modules; None where they are recorded."""
        setup = self._memory.setup
        if setup.reader is not None:
            return None
        return why_reading_unrecorded(self._language.model) or portable_by(setup.backend.name)

    @property
    def context_length(self) -> int:
        """Tokens that the next one attends to."""
        return len(self._memory.tokens)

    @property
    def info(self) -> DialogueInfo:
        with self._memory.lock:
            state, use = self._memory.state, self._memory.use()
        return DialogueInfo(
            num_frames=state.num_frames,
            num_forgotten=state.num_forgotten,
            num_tokens=use.live,
            num_places=self._memory.setup.num_places,
            num_bytes=use.num_bytes,
            live_bytes=use.live_bytes,
            next_position=state.next_position,
            seen_until_s=state.last_s,
            seeing_s=self._seeing_s,
        )

    def save(self, path: Path) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        with self._memory.lock:
            self._as_file().save(path)

    def snapshot(self) -> TensorFile:
        """All that `save` writes, as it is now, on its own."""
        with self._memory.lock:
            return self._as_file().copied()

    def _as_file(self) -> TensorFile:
        setup, pictures, state = self._memory.setup, self._language.picture_format, self._memory.state
        record = DialogueRecord(
            **self._settings,
            weights=self._weights(),
            min_pixels=pictures.min_pixels,
            max_pixels=pictures.max_pixels,
            backend=setup.backend.name,
            retaining=policy_record(setup.policy),
            talk=StateRecord.of(state),
            judged=self._judged.value,
        )
        return TensorFile(self._memory.contents() | state_pieces(state), asdict(record))

    @classmethod
    def resume(cls, path: Path, language: LanguageModel, backend: Backend | None = None) -> "DialogueSession":
        """Go on where `save` was called, with the same weights; bit-identical on the same backend."""
        return cls.restored(SavedTensors(path), language, backend)

    @classmethod
    def restored(
        cls, saved: SavedTensors, language: LanguageModel, backend: Backend | None = None
    ) -> "DialogueSession":
        """The session of a file that is open already."""
        record = DialogueRecord.read(saved.path, saved.record, language.model)
        language = replace(language, picture_format=record.pictures(language.picture_format))
        session = cls(
            language,
            budget_bytes=record.budget_bytes,
            system=record.system,
            stream_format=record.stream_format,
            retaining=segment_policy_of(record.retaining),
            answer_tokens=record.answer_tokens,
            backend=backend or recorded_backend(record.backend),
        )
        session._memory.restore(saved, record.talk.state(saved, language.picture_format))
        session._judged.become(record.judged)
        return session

    def close(self) -> None:
        """End the session and give its memory back; ending twice is fine."""
        self._memory.close()

    def __enter__(self) -> "DialogueSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _looks(
        self, frames: UInt8[Tensor, "frames 3 height width"], timestamps_s: Sequence[float], patience_s: float
    ) -> Iterator[AbstractContextManager[Sequence[Part]]]:
        """At portions of frames one after the other, or at frames that wait for their partners."""
        coming = with_frames(self._memory.state, frames, timestamps_s, self._language.picture_format)
        if len(coming.held) < self._language.picture_format.temporal_patch:
            yield nullcontext([self._memory.hold(coming)])
        for portion in self._portions(coming):
            yield self._look_at(portion, patience_s)

    def _portions(self, coming: DialogueState) -> Iterator[Portion]:
        """Of whole grids that take no more than a quarter of the memory, but one at least, or of the range."""
        assert coming.fit is not None
        setup = self._memory.setup
        most_grids = max(1, setup.num_places // 4 // (coming.fit.rows * coming.fit.columns))
        is_clip = self._format is StreamFormat.OPEN_CLIP
        most_s = setup.position_range / 4 / setup.family.positions_per_second if is_clip else math.inf
        return portions(coming, self._language.picture_format.temporal_patch, most_grids=most_grids, most_s=most_s)

    @contextmanager
    def _look_at(self, portion: Portion, patience_s: float) -> Iterator[Sequence[Part]]:
        assert portion.coming.fit is not None
        features = self._prompts.frame_features(portion.frames, portion.coming.fit)
        with self._memory.append(
            lambda state: self._prompts.frame_tokens(portion.after(state), features, portion.times_s),
            grid_times_s=portion.times_s,
            patience_s=patience_s,
        ) as read:
            judged = self._judged_with(features, len(portion.times_s))
            yield (partial(self._judged.become_with, judged), *read.parts)

    def _judged_with(self, features: Features, num_grids: int) -> Judged:
        """How far the first grids are from what the model knows, once these are among them."""
        before = self._judged.value
        missing = min(num_grids, CLIP_GRIDS - before.number)
        if self._familiarity is None or missing <= 0:
            return before
        distances = self._familiarity.distances(grid_descriptors(features, num_grids)[:missing].cpu())
        return before.with_distances(distances)

    def _question_ids(self, question: str) -> tuple[int, ...]:
        _require_words(question)
        return self._language.question_ids(question)

    def _first_ids(self, letter: str) -> list[int]:
        """Ids with which an answer that is this letter may begin."""
        tokenizer = self._language.required_tokenizer
        return sorted({tokenizer.encode(form)[0] for form in (letter, f" {letter}")})

    def _asking(self, fork: DialogueMemory, question: Sequence[int], sampling: TextSampling) -> "_Asking":
        asked = self._asked(fork, question)
        # a frame that waits for its partner is read with the question
        token = np.concatenate([fork.tokens, fork.next_token + np.arange(asked.num_tokens)])
        writing = Writing(self._language, sampling, self._network.device)
        return _Asking(fork, asked, token, AttentionRecorder(len(token)), writing)

    def _asked(self, fork: DialogueMemory, question: Sequence[int]) -> TokenInputs:
        return self._prompts.question_tokens(fork.state, question, next_token=fork.next_token)

    def _next_logits(self, fork: DialogueMemory, inputs: TokenInputs) -> Float[Tensor, " vocabulary"]:
        """Of what comes after these tokens."""
        return self._logits_of([Feed(fork, inputs)])[0]

    def _logits_of(self, feeds: Sequence[Feed]) -> Float[Tensor, "feeds vocabulary"]:
        """Of what comes after the tokens of each."""
        return self._network.logits(torch.cat([states[:, -1] for states in DialogueMemory.feed_together(feeds)]))

    def _later_log_likelihoods(
        self, fork: DialogueMemory, branches: Sequence[Sequence[int]]
    ) -> Float[Tensor, "branches tokens vocabulary"]:
        """Of what comes after each token but the last, of branches that go on from the same past."""
        num_tokens = len(branches[0]) - 1
        if not num_tokens:
            return torch.empty(len(branches), 0, self._language.text.vocabulary_size)
        embedded = torch.cat([self._network.embed(ids[:-1]) for ids in branches])
        place = self._memory.setup.family.positions([Text(num_tokens)], fork.state.next_position)
        return self._network.logits(fork.read_batch(embedded, place.rows)).log_softmax(-1)


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """A question on its fork, and its answer under way."""

    fork: DialogueMemory
    asked: TokenInputs
    token: Int64[np.ndarray, " tokens"]
    """Which tokens of the conversation may be evidence: all up to where the answer begins."""
    recorder: AttentionRecorder
    writing: Writing

    def feed(self, inputs: TokenInputs) -> Feed:
        return Feed(self.fork, inputs, self.recorder, self.writing.num_left)

    def answer(self, generated: Generated, started_s: float, forked_s: float) -> Answer:
        """For a question that came, and had its fork, at these times."""
        last_s, mass = self.asked.state.last_s, self.recorder.attention_mass.numpy()
        return Answer(
            text=generated.text,
            ids=generated.ids,
            ending=generated.ending,
            seen_until_s=last_s,
            evidence=evidence(self.asked.state.segments, self.token, mass, until_s=last_s),
            timing=generated.timing(started_s, forked_s),
            num_prompt_tokens=len(self.token),
        )


def _up_to_answer(pieces: Iterator[str | Answer]) -> Iterator[str | Answer]:
    """The text of the next answer, and it."""
    for piece in pieces:
        yield piece
        if isinstance(piece, Answer):
            return


def _require_words(text: str) -> None:
    if not text.strip():
        raise InputError("Expected a question or choice with words in it, but got an empty one.")
