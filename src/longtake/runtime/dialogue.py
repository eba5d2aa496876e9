"""The session of questions about one video: frames go in as they come, a question pays for its own tokens alone.

Frames belong to one clip that stays open (`language/formats.py`), so that what is remembered is the prompt a plain
model would get for the video so far. A question closes the clip on a fork, which is dropped with the answer or, to be
remembered, becomes the session. Two other formats give every call of `see` a turn of its own.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.causal import CausalRecall, Witness
from longtake.attention.choose import backend_named
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import InputError, MemoryFullError, SavedSessionError
from longtake.language.anchoring import RANGE, moved_back
from longtake.language.evidence import evidence
from longtake.language.formats import StreamFormat
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.language.positions import Text, positions
from longtake.language.prompting import Fed, Prompter, Talk, with_frames
from longtake.language.retaining import RecentFrames, Retaining
from longtake.language.sampling import Sampling
from longtake.language.words import TextStream
from longtake.memory.budget import Needs, require_room
from longtake.memory.memory import Memory
from longtake.memory.retention import Keep, KeepAll
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.runtime.answers import Answer, Choice, DialogueInfo, Ending, LetterChoice, Timing
from longtake.runtime.dialogue_file import (
    header,
    require_dialogue,
    rule_of,
    rule_record,
    talk_of,
    talk_pieces,
    talk_record,
)
from longtake.runtime.record import fingerprint

SYSTEM = "You are a helpful assistant."
_GREEDY = Sampling()


class DialogueSession:
    """One video and what is asked about it. Frames come from one thread; questions may come from many, meanwhile."""

    def __init__(
        self,
        language: LanguageModel,
        *,
        budget_bytes: int,
        system: str = SYSTEM,
        stream_format: StreamFormat = StreamFormat.OPEN_CLIP,
        retaining: Retaining | None = None,
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
        self._prompter = Prompter(language, self._network, system, stream_format)
        self._backend = backend or SdpaBackend()
        needs = Needs(streams={TEXT: (self._network.layout(), KeepAll())}, first_clip=1, reserve=answer_tokens)
        plans = needs.plan(budget_bytes)
        require_room(sum(plan.num_bytes for plan in plans.values()), self._network.device)
        self._memory = Memory(plans, self._network.device)
        self._num_places = plans[TEXT].num_slots - answer_tokens
        self._retaining = retaining or RecentFrames()
        self._range = RANGE
        self._state = Talk()
        self._turn = threading.Lock()
        self._seeing_s = 0.0

    def see(self, frames: UInt8[Tensor, "frames 3 height width"], timestamps_s: Sequence[float]) -> None:
        """Take more frames. One without a partner waits for it; frames that are refused leave the session as it was."""
        started = time.perf_counter()
        state = with_frames(self._state, frames, timestamps_s, self._language.picture_format)
        pair = self._language.picture_format.temporal_patch
        num_whole = len(state.held) // pair * pair
        if not num_whole:
            self._state = state
            return
        whole, whole_s = state.held[:num_whole], state.held_s[:num_whole]
        state = replace(state, held=state.held[num_whole:], held_s=state.held_s[num_whole:])
        size = pair * self._grids_at_once(state)
        for start in range(0, num_whole, size):
            times = whole_s[start : start + size : pair]
            frames_now = torch.stack(whole[start : start + size])
            fed = self._with_room(self._prompter.shown(self._anchored(state, times[-1]), frames_now, times, pad=False))
            self._take_in(self._memory, fed, keep_state=True)
            state = fed.state
        self._seeing_s += time.perf_counter() - started

    def ask(self, question: str, sampling: Sampling = _GREEDY, *, remember: bool = False) -> Answer:
        """The whole answer; with `remember` question and answer stay in the conversation."""
        *_, answer = self.ask_stream(question, sampling, remember=remember)
        assert isinstance(answer, Answer)
        return answer

    def ask_stream(
        self, question: str, sampling: Sampling = _GREEDY, *, remember: bool = False
    ) -> Iterator[str | Answer]:
        """Text as it comes, whole characters only, and last the answer; leaving early leaves no trace."""
        started = time.perf_counter()
        asked = self._encode(question)
        with self._turn:
            fork, state = self._memory.fork(), self._state
        with fork:
            forked = time.perf_counter()
            token = fork.tokens(TEXT).frame
            witness = Witness(len(token))
            logits, state = self._hear(fork, self._prompter.questioned(state, asked), witness)
            for said in self._speak(fork, logits, state, sampling, (started, forked), witness, remember=remember):
                if isinstance(said, Answer) and state.last_s is not None:
                    received = witness.received.numpy()
                    spans = evidence(state.segments, token, received, until_s=state.last_s)
                    yield replace(said, evidence=spans)
                else:
                    yield said

    def ask_choice(self, question: str, choices: Sequence[str]) -> list[Choice]:
        """How likely each choice is as the answer, all scored in one pass over the same past; in the order given."""
        _require_choices(choices)
        texts = [self._encode(choice) for choice in choices]
        asked = self._encode(question)
        with self._turn:
            fork, state = self._memory.fork(), self._state
        with fork:
            logits, state = self._hear(fork, self._prompter.questioned(state, asked))
            likelihoods = self._score(fork, logits, state, texts)
        return [
            Choice(text=text, sum_log_likelihood=sum(parts), mean_log_likelihood=sum(parts) / len(parts))
            for text, parts in zip(choices, likelihoods, strict=True)
        ]

    def ask_letter(self, question: str, choices: Sequence[str]) -> list[LetterChoice]:
        """The same with the choices in the question, as A., B. and so on: which letter comes first, in one pass."""
        _require_choices(choices)
        if len(choices) > len(ascii_uppercase):
            raise InputError(f"Expected at most {len(ascii_uppercase)} choices by letters, but got {len(choices)}.")
        self._encode(question)
        offered = [f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False)]
        with self._turn:
            fork, state = self._memory.fork(), self._state
        with fork:
            asked = self._encode("\n".join([question, *offered]))
            logits, _ = self._hear(fork, self._prompter.questioned(state, asked))
        letters = ascii_uppercase[: len(choices)]
        best = torch.stack([logits[self._first_ids(letter)].max() for letter in letters]).softmax(0).tolist()
        return [
            LetterChoice(text=text, letter=letter, share=share)
            for text, letter, share in zip(choices, letters, best, strict=True)
        ]

    def _first_ids(self, letter: str) -> list[int]:
        """Ids with which an answer that is this letter may begin."""
        return sorted({self._language.words.encode(form)[0] for form in (letter, f" {letter}")})

    def reset(self) -> None:
        """Forget the video and the conversation."""
        with self._turn:
            self._memory.clear()
            self._state = Talk()

    @property
    def info(self) -> DialogueInfo:
        with self._turn:
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
        with self._turn:
            record = (
                header()
                | self._settings
                | {
                    "weights": fingerprint(self._language.model),
                    "backend": self._backend.name,
                    "retaining": rule_record(self._retaining),
                    "talk": talk_record(self._state),
                }
            )
            write_tensors(path, self._memory.contents() | talk_pieces(self._state), record)

    @classmethod
    def resume(cls, path: Path, language: LanguageModel, backend: Backend | None = None) -> "DialogueSession":
        """Go on where `save` was called, with the same weights; bit-identical on the same backend."""
        saved = SavedTensors(path)
        said = dict(saved.record)
        require_dialogue(path, said)
        if said["weights"] != fingerprint(language.model):
            raise SavedSessionError("The saved dialogue was made with other weights; load those it was made with.")
        session = cls(
            language,
            budget_bytes=said["budget_bytes"],
            system=said["system"],
            stream_format=StreamFormat(said["stream_format"]),
            retaining=rule_of(said["retaining"]),
            answer_tokens=said["answer_tokens"],
            backend=backend or backend_named(said["backend"]),
        )
        session._memory.restore(saved)
        session._state = talk_of(said["talk"], saved, language.picture_format)
        return session

    def close(self) -> None:
        self._memory.close()

    def _grids_at_once(self, state: Talk) -> int:
        """So many that they take no more than a quarter of the memory, but one at least."""
        assert state.fit is not None
        return max(1, self._num_places // 4 // (state.fit.rows * state.fit.columns))

    def _anchored(self, state: Talk, until_s: float) -> Talk:
        """The same talk, its clip moved back in time where its positions would leave the range."""
        clip, facts = state.clip, self._language.text
        reach = min(self._range, facts.max_positions)
        if clip is None or clip.base + (until_s - clip.start_s) * facts.tokens_per_second < reach:
            return state
        grids = [segment for segment in state.segments if segment.time_s >= clip.start_s]
        if not grids:
            return state
        back = int((grids[0].time_s - clip.start_s) * facts.tokens_per_second)
        places = [np.arange(segment.first, segment.first + segment.num_tokens) for segment in grids]
        moved = back and self._memory.revise_keys(
            TEXT, np.concatenate(places), lambda keys: moved_back(keys, back, facts)
        )
        if not moved:
            return state
        clip = replace(clip, start_s=clip.start_s + back / facts.tokens_per_second, last_time=clip.last_time - back)
        after = replace(state, clip=clip, next_position=state.next_position - back)
        with self._turn:
            self._state = replace(self._state, clip=clip, next_position=after.next_position)
        return after

    def _with_room(self, fed: Fed) -> Fed:
        """What is to be taken in, once older frames have left where there was no room for it."""
        num_missing = len(self._memory.tokens(TEXT)) + fed.embedded.shape[1] - self._num_places
        segments = fed.state.segments
        leaving = self._retaining.leaving(segments, max(0, num_missing))
        if num_missing > sum(segment.num_tokens for segment in leaving):
            raise MemoryFullError(
                f"The memory has room for {self._num_places} tokens beside those for answers, and the next frames need "
                f"{num_missing} more than are left; give it a larger budget, smaller frames, or let old ones leave."
            )
        if leaving:
            places = [np.arange(segment.first, segment.first + segment.num_tokens) for segment in leaving]
            self._memory.forget(TEXT, np.concatenate(places))
        start = self._memory.num_kept
        coming = [replace(segment, first=segment.first + start) for segment in fed.segments]
        gone = {segment.first for segment in leaving}
        stay = tuple(segment for segment in segments if segment.first not in gone)
        num_forgotten = fed.state.num_forgotten + len(leaving)
        return replace(fed, state=replace(fed.state, segments=(*stay, *coming), num_forgotten=num_forgotten))

    def _encode(self, text: str) -> tuple[int, ...]:
        if not text.strip():
            raise InputError("Expected a question or choice with words in it, but got an empty one.")
        return self._language.words.encode(text)

    def _take_in(
        self, memory: Memory, fed: Fed, *, keep_state: bool, witness: Witness | None = None
    ) -> Float[Tensor, "1 tokens width"]:
        """Read tokens and remember them; for the session itself its state changes with its memory, in one step."""
        with memory.begin(fed.embedded.shape[1], Keep.YES) as transaction:
            hidden = self._network.read(fed.embedded, fed.rows, CausalRecall(transaction, self._backend, witness))
            with self._turn:
                transaction.commit()
                if keep_state:
                    self._state = fed.state
        return hidden

    def _hear(self, fork: Memory, fed: Fed, witness: Witness | None = None) -> tuple[Float[Tensor, " words"], Talk]:
        """What comes after these tokens."""
        hidden = self._take_in(fork, fed, keep_state=False, witness=witness)
        return self._network.logits(hidden[0, -1]), fed.state

    def _speak(
        self,
        fork: Memory,
        logits: Float[Tensor, " words"],
        state: Talk,
        sampling: Sampling,
        clock: tuple[float, float],
        witness: Witness,
        *,
        remember: bool,
    ) -> Iterator[str | Answer]:
        stream, generator = TextStream(self._language.words, sampling.stop), sampling.new_generator(logits.device)
        ids: list[int] = []
        said: list[str] = []
        ending, num_fed, first = Ending.LENGTH, 0, 0.0
        while len(ids) < sampling.max_new_tokens:
            token = sampling.choose(logits, generator, self._language.suppressed_ids)
            first = first or time.perf_counter()
            ids.append(token)
            piece = "" if token in self._language.eos_ids else stream.add(token)
            if piece:
                said.append(piece)
                yield piece
            if token in self._language.eos_ids or stream.stopped:
                ending = Ending.STOP
                break
            if len(ids) < sampling.max_new_tokens:
                logits, state = self._hear(fork, self._prompter.word(token, state), witness)
                num_fed += 1
        rest = stream.finish()
        if rest:
            said.append(rest)
            yield rest
        ended = time.perf_counter()
        if remember:
            self._remember(fork, state, ids[num_fed:])
        started, forked = clock
        yield Answer(
            text="".join(said),
            ids=tuple(ids),
            ending=ending,
            seen_until_s=state.last_s,
            evidence=(),
            timing=Timing(
                fork_s=forked - started,
                prefill_s=first - forked,
                first_token_s=first - started,
                total_s=ended - started,
                tokens_per_s=(len(ids) - 1) / (ended - first) if len(ids) > 1 and ended > first else None,
            ),
        )

    def _remember(self, fork: Memory, state: Talk, unfed: Sequence[int]) -> None:
        """Close the turn; the fork becomes the session, unless frames have come meanwhile."""
        closed = self._prompter.turn_closed(state, unfed)
        self._take_in(fork, closed, keep_state=False)
        with self._turn:
            fork.commit_fork()
            self._state = closed.state

    def _score(
        self, fork: Memory, logits: Float[Tensor, " words"], state: Talk, choices: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Log-likelihood of every token of every choice."""
        first = logits.log_softmax(-1)
        longest = max(map(len, choices))
        padded = [[*choice, *[choice[-1]] * (longest - len(choice))] for choice in choices]
        later = torch.empty(len(choices), 0, len(logits))
        if longest > 1:
            embedded = torch.cat([self._network.embed(ids[:-1]) for ids in padded])
            place = positions([Text(longest - 1)], state.next_position)
            with fork.begin(1, Keep.NO) as transaction:
                hidden = self._network.read(embedded, place.rows, CausalRecall(transaction, self._backend))
            later = self._network.logits(hidden).log_softmax(-1)
        return [
            [float(first[ids[0]])] + [float(later[entry, at, ids[at + 1]]) for at in range(len(ids) - 1)]
            for entry, ids in enumerate(choices)
        ]


def _require_choices(choices: Sequence[str]) -> None:
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise InputError(f"Expected two choices or more, all different, but got {list(choices)}; give others.")
