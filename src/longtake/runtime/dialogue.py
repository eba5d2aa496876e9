"""The session of questions about one video: frames go in as they come, a question pays for its own tokens alone.

Frames belong to one clip that stays open (`language/formats.py`), so that what is remembered is the prompt a plain
model would get for the video so far. A question closes the clip on a fork, which is dropped with the answer or, to be
remembered, becomes the session. Two other formats give every call of `see` a turn of its own.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from string import ascii_uppercase

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.causal import AttentionRecorder, CausalRecall
from longtake.attention.choose import backend_named
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import ForkError, InputError, MemoryFullError, UnknownWordsError
from longtake.language.evidence import Evidence, evidence
from longtake.language.formats import StreamFormat
from longtake.language.key_rotation import RANGE, KeyRotation, moved_back
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.language.positions import Text, positions
from longtake.language.prompt_builder import DialogueState, PromptBuilder, TokenInputs, with_frames
from longtake.language.rope_shift import moved_back_by
from longtake.language.sampling import TextSampling
from longtake.memory.budget import MemoryRequirements, require_room
from longtake.memory.memory import Memory
from longtake.memory.policies.keep_all import KeepAll
from longtake.memory.policies.window import Window
from longtake.memory.policy import Keep, SegmentPolicy
from longtake.memory.registry import segment_policy_of
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.memory.transaction import Transaction
from longtake.runtime.answers import Answer, Choice, DialogueInfo, Ending, LetterChoice, Timing
from longtake.runtime.choice_scoring import by_letters, by_likelihood, equally_long, offered_by_letters, require_choices
from longtake.runtime.dialogue_file import dialogue_record, require_dialogue, state_from_record, state_pieces
from longtake.runtime.eviction import beside_questions, leaving_for, require_known, taken_up, tokens_of, without
from longtake.runtime.generation import Generated, generate
from longtake.runtime.portions import Portion, portions
from longtake.runtime.position_window import later_clips, leaving_for_range, within_range

SYSTEM = "You are a helpful assistant."
_GREEDY = TextSampling()


class DialogueSession:
    """One video and what is asked about it. Frames come from one thread; questions may come from many, meanwhile."""

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
    ) -> None:
        """A session with a memory allocated here, of which `answer_tokens` are for all questions under way.

        What leaves when the rest is full is for `retaining` to say; by default the oldest frames.
        """
        self._language, self._network = language, language.network
        self._settings = {
            "budget_bytes": budget_bytes,
            "system": system,
            "stream_format": stream_format.value,
            "answer_tokens": answer_tokens,
        }
        self._prompts = PromptBuilder(language, self._network, system, stream_format)
        self._backend = backend or SdpaBackend()
        needs = MemoryRequirements(
            streams={TEXT: (self._network.layout(), KeepAll())}, first_clip=1, reserve=answer_tokens
        )
        plans = needs.plan(budget_bytes)
        require_room(sum(plan.num_bytes for plan in plans.values()), self._network.device)
        self._memory = Memory(plans, self._network.device)
        self._num_places = plans[TEXT].num_slots - answer_tokens
        most = language.text.max_positions
        self._range = min(RANGE, max(most - answer_tokens, most // 2))
        self._retaining = retaining or Window.for_dialogue()
        self._state = DialogueState()
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        self._seeing_s = 0.0

    def see(
        self, frames: UInt8[Tensor, "frames 3 height width"], timestamps_s: Sequence[float], *, patience_s: float = 0.0
    ) -> None:
        """Take more frames. One without a partner waits for it; frames that are refused leave the session as it was.

        What leaves a full memory stays for questions under way: up to `patience_s` these are waited for.
        """
        started = time.perf_counter()
        with self._changing:
            with self._lock:  # an answer may be on its way into the session
                state = self._state
            coming = with_frames(state, frames, timestamps_s, self._language.picture_format)
            if len(coming.held) < self._language.picture_format.temporal_patch:
                with self._lock:
                    self._state = coming
            for portion in self._portions(coming):
                state = self._anchored(portion.after(state), portion.times_s)
                inputs = self._with_room(self._prompts.shown(state, portion.frames, portion.times_s, pad=False))
                try:
                    self._take_in(self._memory, inputs, keep_state=True, patience_s=patience_s)
                except MemoryFullError as error:
                    raise beside_questions(len(inputs.rows[0]), portion.times_s[0], patience_s) from error
                state = inputs.state
        self._seeing_s += time.perf_counter() - started

    def ask(self, question: str, sampling: TextSampling = _GREEDY, *, remember: bool = False) -> Answer:
        """The whole answer; with `remember` question and answer stay in the conversation."""
        *_, answer = self.ask_stream(question, sampling, remember=remember)
        assert isinstance(answer, Answer)
        return answer

    def ask_stream(
        self, question: str, sampling: TextSampling = _GREEDY, *, remember: bool = False
    ) -> Iterator[str | Answer]:
        """Text as it comes, whole characters only, and last the answer; leaving early leaves no trace.

        A question outside of what a model of few words knows is answered with what it knows, and never remembered.
        """
        started = time.perf_counter()
        try:
            asked = self._encode(question)
        except UnknownWordsError as refusal:
            yield str(refusal)
            yield self._refused(str(refusal), started)
            return
        fork, state = self._fork()
        with fork:
            forked, questioned = time.perf_counter(), self._questioned(fork, state, asked)
            # a frame that waits for its partner is read with the question
            read = fork.num_kept + np.arange(questioned.embedded.shape[1])
            token = np.concatenate([fork.tokens(TEXT).frame, read])
            recorder = AttentionRecorder(len(token))
            logits, heard = self._hear(fork, questioned, recorder)

            def hear(word: int) -> Float[Tensor, " words"]:
                nonlocal heard
                following, heard = self._hear(fork, self._prompts.word(word, heard), recorder)
                return following

            for said in generate(self._language, sampling, logits, hear):
                if isinstance(said, Generated):
                    if remember:
                        self._remember(fork, state, self._prompts.turn_closed(heard, said.ids[said.num_heard :]))
                    yield Answer(
                        text=said.text,
                        ids=said.ids,
                        ending=said.ending,
                        seen_until_s=state.last_s,
                        evidence=self._evidence(questioned.state, token, recorder),
                        timing=said.timing(started, forked),
                    )
                else:
                    yield said

    def ask_choice(self, question: str, choices: Sequence[str]) -> list[Choice]:
        """How likely each choice is as the answer, all scored in one pass over the same past; in the order given."""
        asked, tokens = self.require_askable(question, choices)
        fork, state = self._fork()
        with fork:
            logits, state = self._hear(fork, self._questioned(fork, state, asked))
            later = self._hear_all(fork, state, equally_long(tokens))
        return by_likelihood(choices, tokens, logits.log_softmax(-1), later)

    def require_askable(
        self, question: str, choices: Sequence[str]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Tokens of a question and of its choices; refused in a sentence where the model does not know them."""
        require_choices(choices)
        for choice in choices:
            _require_words(choice)
        return self._encode(question), tuple(map(self._language.choice_ids, choices))

    def ask_letter(self, question: str, choices: Sequence[str]) -> list[LetterChoice]:
        """The same with the choices in the question, as A., B. and so on: which letter comes first, in one pass."""
        require_choices(choices)
        _require_words(question)
        asked = self._language.choice_ids(offered_by_letters(question, choices))
        fork, state = self._fork()
        with fork:
            logits, _ = self._hear(fork, self._questioned(fork, state, asked))
        best = [logits[self._first_ids(letter)].max() for letter in ascii_uppercase[: len(choices)]]
        return by_letters(choices, torch.stack(best))

    def _first_ids(self, letter: str) -> list[int]:
        """Ids with which an answer that is this letter may begin."""
        return sorted({self._language.words.encode(form)[0] for form in (letter, f" {letter}")})

    def reset(self) -> None:
        """Forget the video and the conversation."""
        with self._changing, self._lock:
            self._memory.clear()
            self._state = DialogueState()

    @property
    def info(self) -> DialogueInfo:
        with self._lock:
            state, use = self._state, self._memory.use()[TEXT]
        return DialogueInfo(
            num_frames=state.num_frames,
            num_forgotten=state.num_forgotten,
            num_tokens=use.live,
            num_bytes=use.num_bytes,
            live_bytes=use.live_bytes,
            next_position=state.next_position,
            seen_until_s=state.last_s,
            seeing_s=self._seeing_s,
        )

    def save(self, path: Path) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        with self._lock:
            record = dialogue_record(
                self._settings, self._language.model, self._backend.name, self._retaining, self._state
            )
            write_tensors(path, self._memory.contents() | state_pieces(self._state), record)

    @classmethod
    def resume(cls, path: Path, language: LanguageModel, backend: Backend | None = None) -> "DialogueSession":
        """Go on where `save` was called, with the same weights; bit-identical on the same backend."""
        saved = SavedTensors(path)
        said = dict(saved.record)
        require_dialogue(path, said, language.model)
        session = cls(
            language,
            budget_bytes=said["budget_bytes"],
            system=said["system"],
            stream_format=StreamFormat(said["stream_format"]),
            retaining=segment_policy_of(said["retaining"]),
            answer_tokens=said["answer_tokens"],
            backend=backend or backend_named(said["backend"]),
        )
        session._memory.restore(saved)
        session._state = state_from_record(said["talk"], saved, language.picture_format)
        return session

    def close(self) -> None:
        self._memory.close()

    def _fork(self) -> tuple[Memory, DialogueState]:
        """The session as it is now, to ask on."""
        with self._lock:
            return self._memory.fork(), self._state

    def _portions(self, coming: DialogueState) -> Iterator[Portion]:
        """Of whole grids that take no more than a quarter of the memory, but one at least, or of the range."""
        assert coming.fit is not None
        most_grids = max(1, self._num_places // 4 // (coming.fit.rows * coming.fit.columns))
        is_clip = self._settings["stream_format"] == StreamFormat.OPEN_CLIP
        most_s = self._range / 4 / self._language.text.tokens_per_second if is_clip else math.inf
        pair = self._language.picture_format.temporal_patch
        return portions(coming, pair, most_grids=most_grids, most_s=most_s)

    def _anchored(self, state: DialogueState, times_s: Sequence[float]) -> DialogueState:
        """The same talk, its oldest grids gone and its clips moved back in time, where grids would leave the range.

        Not while a question is under way, which reads the keys that would change: then it has to wait.
        """
        text_config = self._language.text
        leaving = leaving_for_range(state, times_s, self._range, text_config, self._retaining)
        if leaving is None:
            return state
        with self._lock:
            for later in later_clips(state, leaving, text_config):
                revise = partial(moved_back, positions=later.back, text_config=text_config)
                if not self._memory.revise_keys(TEXT, tokens_of(later.grids), revise):
                    return state
            if leaving:
                self._memory.forget(TEXT, tokens_of(leaving))
            staying, next_token = self._memory.tokens(TEXT).frame, self._memory.num_kept
            self._state, after = (
                within_range(dialogue, leaving, times_s[0], staying, next_token=next_token, text_config=text_config)
                for dialogue in (self._state, state)
            )
        return after

    def _with_room(self, inputs: TokenInputs) -> TokenInputs:
        """What is to be taken in, once older frames have left where there was no room for it."""
        num_missing = len(self._memory.tokens(TEXT)) + inputs.embedded.shape[1] - self._num_places
        leaving = leaving_for(inputs.state.segments, num_missing, self._num_places, self._retaining)
        next_token, after = self._memory.num_kept, inputs.state
        if leaving:
            with self._lock:
                self._memory.forget(TEXT, tokens_of(leaving))
                staying = self._memory.tokens(TEXT).frame
                self._state = without(self._state, leaving, staying, next_token=next_token)
            after = without(after, leaving, staying, next_token=next_token)
        return taken_up(inputs, after, next_token=next_token)

    def _encode(self, text: str) -> tuple[int, ...]:
        _require_words(text)
        return self._language.question_ids(text)

    def _refused(self, why: str, started_s: float) -> Answer:
        return Answer(
            text=why,
            ids=(),
            ending=Ending.REFUSED,
            seen_until_s=self.info.seen_until_s,
            evidence=(),
            timing=Timing.at_once(time.perf_counter() - started_s),
        )

    def _take_in(
        self,
        memory: Memory,
        inputs: TokenInputs,
        *,
        keep_state: bool,
        recorder: AttentionRecorder | None = None,
        patience_s: float = 0.0,
    ) -> Float[Tensor, "1 tokens width"]:
        """Read tokens and remember them; for the session itself its state changes with its memory, in one step."""
        require_known(inputs, self._language.text)
        with memory.begin(inputs.embedded.shape[1], Keep.YES, patience_s=patience_s) as transaction:
            recall = self._recall(memory, transaction, inputs.state, recorder)
            hidden = self._network.read(inputs.embedded, inputs.rows, recall)
            with self._lock:
                transaction.commit()
                if keep_state:
                    self._state = inputs.state
        return hidden

    def _recall(
        self, memory: Memory, transaction: Transaction, state: DialogueState, recorder: AttentionRecorder | None = None
    ) -> CausalRecall:
        """The past as it is read now: what has moved since it was written is turned on the way, never in memory."""
        turn = None
        if state.moved:
            back = moved_back_by(state.moved, memory.tokens(TEXT).frame)
            turn = KeyRotation.back(back, self._language.text, self._network.device)
        return CausalRecall(transaction, self._backend, recorder, turn)

    def _questioned(self, fork: Memory, state: DialogueState, asked: Sequence[int]) -> TokenInputs:
        return self._prompts.questioned(state, asked, next_token=fork.num_kept)

    def _hear(
        self, fork: Memory, inputs: TokenInputs, recorder: AttentionRecorder | None = None
    ) -> tuple[Float[Tensor, " words"], DialogueState]:
        """What comes after these tokens."""
        hidden = self._take_in(fork, inputs, keep_state=False, recorder=recorder)
        return self._network.logits(hidden[0, -1]), inputs.state

    def _remember(self, fork: Memory, before: DialogueState, closed: TokenInputs) -> None:
        """Close the turn; the fork becomes the session, unless frames came since it was as `before`, or are coming."""
        self._take_in(fork, closed, keep_state=False)
        with self._lock:
            if self._changing.locked() or self._state is not before:
                raise ForkError(
                    "The video has moved on since this question was asked, so that its answer cannot be remembered; "
                    "ask again, between two calls of `see`."
                )
            fork.commit_fork()
            self._state = closed.state

    def _evidence(
        self, state: DialogueState, token: Int64[np.ndarray, " tokens"], recorder: AttentionRecorder
    ) -> tuple[Evidence, ...]:
        if state.last_s is None:
            return ()
        return evidence(state.segments, token, recorder.attention_mass.numpy(), until_s=state.last_s)

    def _hear_all(
        self, fork: Memory, state: DialogueState, branches: Sequence[Sequence[int]]
    ) -> Float[Tensor, "branches tokens words"]:
        """Log-likelihoods of what comes after each token but the last, of branches that go on from the same past."""
        num_tokens = len(branches[0]) - 1
        if not num_tokens:
            return torch.empty(len(branches), 0, self._language.text.vocabulary_size)
        embedded = torch.cat([self._network.embed(ids[:-1]) for ids in branches])
        place = positions([Text(num_tokens)], state.next_position)
        with fork.begin(1, Keep.NO) as transaction:
            hidden = self._network.read(embedded, place.rows, self._recall(fork, transaction, state))
        return self._network.logits(hidden).log_softmax(-1)


def _require_words(text: str) -> None:
    if not text.strip():
        raise InputError("Expected a question or choice with words in it, but got an empty one.")
