"""What a dialogue remembers: the keys and values of its tokens, and the state that goes with them.

Both change together, under one lock, when tokens are committed. What leaves for them leaves then, and clips move back
then: a refusal or an error leaves memory and state as they were.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.causal import AttentionRecorder, CausalRecall
from longtake.errors import ForkError, MemoryFullError
from longtake.language.dialogue_state import DialogueState
from longtake.language.family import Family
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT, Network
from longtake.language.prompt_builder import TokenInputs
from longtake.language.rope_shift import RANGE, moved_back_by
from longtake.memory.budget import MemoryRequirements, require_room
from longtake.memory.change import Change, Changing, Part, change_together
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.policy import Keep, Segment, SegmentPolicy
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.shared_pool import StreamUse
from longtake.memory.transaction import Transaction
from longtake.runtime.eviction import (
    Later,
    RangeShift,
    beside_questions,
    leaving_for,
    placed,
    positions_back,
    range_shift,
    remaining,
    require_positions,
    tokens_of,
    without,
)
from longtake.runtime.recorded_reading import PastAndTail, RecordedReader, TokenClip

_AHEAD = 16
"""Places for words that are staged at once: what an answer's books cost is paid once for so many."""
_LEFT_TO_OTHERS = 8
"""So many times as much is free as an answer stages ahead."""
Build = Callable[[DialogueState], TokenInputs]
"""Makes the next tokens of a conversation from its state; called again should the state have to be another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueSetup:
    """What never changes in a dialogue, shared by its forks."""

    network: Network
    family: Family
    backend: Backend
    reader: RecordedReader | None
    """Where passes can be recorded; else they are those of `network`."""
    policy: SegmentPolicy
    num_places: int
    """Most tokens, those of questions under way not counted."""
    position_range: int
    """Positions that a clip may reach before it is moved back."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Tokens that are to be read, what is forgotten for them, and the state while they are read."""

    inputs: TokenInputs
    leaving: Sequence[Segment]
    meanwhile: DialogueState


@dataclass(frozen=True, slots=True)
class Read:
    """Tokens that were read; nothing has changed before `take`."""

    hidden: Float[Tensor, "1 tokens width"]
    parts: tuple[Part, ...]
    """Of the change by which the conversation goes on from them."""

    def take(self) -> None:
        """Let it go on from them."""
        change_together(*self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """Tokens on their way into a fork, in the places set aside for questions."""

    fork: "DialogueMemory"
    inputs: TokenInputs
    recorder: AttentionRecorder | None = None
    num_following: int = 0
    """Words that may come after them, one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ahead:
    """A clip staged in a fork whose tokens are read one after another, and the state after those that were."""

    transaction: Transaction
    num_places: int
    places: PastAndTail
    state: DialogueState
    num_read: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Talk:
    """How far a conversation has come; replaced as a whole."""

    state: DialogueState
    ahead: _Ahead | None = None
    """In a fork, words that were read after it."""


class DialogueMemory:
    """One conversation, or a fork of one. One thread appends; any number may fork meanwhile.

    A fork ends with `close`, `commit_fork`, a `with` block, or the object.
    """

    def __init__(
        self,
        setup: DialogueSetup,
        memory: Memory,
        state: DialogueState | None = None,
        parent: "DialogueMemory | None" = None,
    ) -> None:
        """Over a memory with the stream `TEXT`; `allocate` makes one."""
        self._setup, self._memory, self._parent = setup, memory, parent
        self._born_as = state or DialogueState()
        self._talk = Changing(_Talk(self._born_as))
        self._lock = memory.lock
        self._writing = threading.Lock()

    @classmethod
    def allocate(
        cls,
        language: LanguageModel,
        network: Network,
        *,
        backend: Backend,
        reader: RecordedReader | None,
        policy: SegmentPolicy,
        budget_bytes: int,
        answer_tokens: int,
    ) -> "DialogueMemory":
        """An empty one of this size, of which `answer_tokens` are for all questions under way."""
        needs = MemoryRequirements(streams={TEXT: (network.layout(), KeepAll())}, first_clip=1, reserve=answer_tokens)
        plans = needs.plan(budget_bytes)
        require_room(sum(plan.num_bytes for plan in plans.values()), network.device)
        most = language.family.max_positions
        setup = DialogueSetup(
            network=network,
            family=language.family,
            backend=backend,
            reader=reader,
            policy=policy,
            num_places=plans[TEXT].num_slots - answer_tokens,
            position_range=min(RANGE, max(most - answer_tokens, most // 2)),
        )
        return cls(setup, Memory(plans, network.device))

    @property
    def state(self) -> DialogueState:
        with self._lock:
            talk = self._talk.value
            return talk.state if talk.ahead is None else talk.ahead.state

    @property
    def setup(self) -> DialogueSetup:
        return self._setup

    @property
    def tokens(self) -> Int64[np.ndarray, " tokens"]:
        """Which tokens of the conversation are remembered, in attention order."""
        self._settle()
        return self._memory.tokens(TEXT).frame

    @property
    def next_token(self) -> int:
        """How many tokens the conversation has had, forgotten ones included."""
        self._settle()
        return self._memory.num_kept

    def require_open(self) -> None:
        """Refuse, in a sentence, whatever is asked of a conversation or fork that was closed."""
        self._memory.require_open()

    @property
    def shares_passes(self) -> bool:
        """Whether forks of this moment read what they share together, in `feed_together`."""
        return self._is_recorded(self.state)

    def use(self) -> StreamUse:
        """How the places are used, over all forks."""
        return self._memory.use()[TEXT]

    def writing(self) -> AbstractContextManager[object]:
        """Hold this while appending or clearing: a fork that would become this conversation meanwhile is refused."""
        self.require_open()
        return self._writing

    def hold(self, state: DialogueState) -> Part:
        """Take over a state that differs in what is counted, held or comes next, but not in what is remembered."""
        self.require_open()
        return partial(self._go_on_from, state)

    def append(
        self, build: Build, *, grid_times_s: Sequence[float] = (), patience_s: float = 0.0
    ) -> AbstractContextManager[Read]:
        """Read tokens to be remembered; where there is no room for them segments are evicted as the policy says.

        Of temporal grids say when they began: clips move back in time should they leave the range of positions. Room
        that is held for questions under way is waited for up to `patience_s`. Leaving without `take` leaves no trace.
        """
        with self._lock:
            self._memory.leave()
            shift = self._range_shift(grid_times_s)
            if shift is not None and shift.later and self._memory.has_forks:
                shift = None  # forks read the keys that would be revised
            step = self._plan(build, shift)
            forgetting: Mapping[str, Int64[np.ndarray, " tokens"]]
            forgetting = {TEXT: tokens_of(step.leaving)} if step.leaving else {}
            moving = [] if shift is None else shift.later
            try:
                transaction = self._memory.begin(
                    step.inputs.num_tokens,
                    Keep.YES,
                    patience_s=patience_s,
                    forgetting=forgetting,
                    rewriting=bool(moving),
                )
            except MemoryFullError as error:
                if not grid_times_s:
                    raise
                raise beside_questions(step.inputs.num_tokens, grid_times_s[0], patience_s) from error
        return self._appended(transaction, step, moving)

    @contextmanager
    def _appended(self, transaction: Transaction, step: _Step, moving: Sequence[Later]) -> Iterator[Read]:
        with transaction:
            if moving:
                tokens, back = positions_back(moving, transaction.past(TEXT).frame)
                revise = partial(self._setup.family.keys_moved_in_time, positions=back)
                transaction.revise_keys(TEXT, tokens, revise)
            yield self._read(transaction, step.inputs, step.meanwhile)

    def feed(self, inputs: TokenInputs, recorder: AttentionRecorder | None = None) -> Float[Tensor, "1 tokens width"]:
        """Read and remember tokens in the places set aside for questions: nothing is evicted for them."""
        (hidden,) = self.feed_together([Feed(self, inputs, recorder)])
        return hidden

    @staticmethod
    def feed_together(feeds: "Sequence[Feed]") -> list[Float[Tensor, "1 tokens width"]]:
        """The same in several forks that were made at one moment: they read what they share together."""
        reader = feeds[0].fork._setup.reader
        if reader is None or not all(each.fork._is_recorded(each.fork._talk.value.state) for each in feeds):
            return [each.fork._feed_alone(each.inputs, each.recorder) for each in feeds]
        hidden = reader.read([each.fork._next_clip(each, shares_past=len(feeds) > 1) for each in feeds])
        for each in feeds:
            each.fork._was_read(each.inputs)
        return hidden

    def _feed_alone(self, inputs: TokenInputs, recorder: AttentionRecorder | None) -> Float[Tensor, "1 tokens width"]:
        self._settle()
        require_positions(inputs, self._setup.family.max_positions)
        self._memory.leave()
        with self._memory.begin(inputs.num_tokens, Keep.YES) as transaction:
            read = self._read(transaction, inputs, self.state, recorder)
            read.take()
        return read.hidden

    def _next_clip(self, feed: "Feed", *, shares_past: bool) -> TokenClip:
        """Where there is no place left that was staged for it, some are, for what follows too."""
        inputs = feed.inputs
        require_positions(inputs, self._setup.family.max_positions)
        ahead = self._talk.value.ahead
        if ahead is None or ahead.num_read + inputs.num_tokens > ahead.num_places:
            self._settle()
            ahead = self._stage_ahead(inputs.num_tokens, feed.num_following, shares_past=shares_past)
            self._talk.become(_Talk(self.state, ahead))
        return TokenClip(inputs.embedded, inputs.rows, ahead.transaction, feed.recorder, ahead.places, ahead.num_read)

    def _stage_ahead(self, num_tokens: int, num_following: int, *, shares_past: bool) -> "_Ahead":
        """Of what is free most is left to other questions, which must not be refused for words that may never come."""
        num_places = num_tokens
        if num_tokens == 1:
            num_places += min(num_following, _AHEAD - 1, self.use().free // _LEFT_TO_OTHERS)
        self._memory.leave()
        transaction = self._memory.begin(num_places, Keep.YES)
        return _Ahead(transaction, num_places, PastAndTail.of(transaction, shares_past=shares_past), self.state)

    def _was_read(self, inputs: TokenInputs) -> None:
        talk = self._talk.value
        assert talk.ahead is not None
        ahead = replace(talk.ahead, num_read=talk.ahead.num_read + inputs.num_tokens, state=inputs.state)
        self._talk.become(replace(talk, ahead=ahead))
        if ahead.num_read == ahead.num_places:
            self._settle()

    def _settle(self) -> None:
        """Remember the tokens that were read into places staged ahead; the rest of these are free again."""
        talk = self._talk.value
        ahead = talk.ahead
        if ahead is None:
            return
        if not ahead.num_read:
            self._talk.become(_Talk(talk.state))
            ahead.transaction.abandon()
            return
        kept = partial(ahead.transaction.commit_with, num_frames=ahead.num_read)
        change_together(partial(self._go_on_from, ahead.state), kept)

    def _leave_lost_clip(self) -> None:
        """Of a step that was interrupted; one that is under way holds `writing`, and is not lost."""
        if not self._writing.locked():
            self._memory.leave()

    def read_batch(
        self, embedded: Float[Tensor, "batch tokens width"], rows: Int64[np.ndarray, "3 tokens"]
    ) -> Float[Tensor, "batch tokens width"]:
        """Read tokens that each go on from here on their own; nothing of them is remembered."""
        self._settle()
        self._memory.leave()
        with self._memory.begin(1, Keep.NO) as transaction:
            return self._setup.network.read(embedded, rows, self.recall(transaction, self.state))

    def recall(
        self, transaction: Transaction, state: DialogueState, recorder: AttentionRecorder | None = None
    ) -> CausalRecall:
        """The past as a clip reads it in this state: keys whose tokens have moved are turned on the way, never in
        memory."""
        rotation = None
        if state.moved:
            back = moved_back_by(state.moved, transaction.past(TEXT).frame)
            rotation = self._setup.family.key_rotation(back, self._setup.network.device)
        return CausalRecall(transaction, self._setup.backend, recorder, rotation)

    def fork(self) -> "DialogueMemory":
        """The conversation as it is now, to go on with apart; what both remember is stored once."""
        with self._lock:
            self._settle()
            self._leave_lost_clip()
            memory = self._memory.fork()  # which may wait
            return DialogueMemory(self._setup, memory, self.state, parent=self)

    def commit_fork(self) -> None:
        """End this fork; the conversation it was made from goes on from here, unless that has moved on meanwhile."""
        with self._lock:
            self._settle()
            parent = self._parent
            if parent is not None and (parent._writing.locked() or parent._talk.value.state is not self._born_as):
                raise ForkError(
                    "The video has moved on since this question was asked or this fork was made, so that it cannot "
                    "be remembered; ask or fork again, between two calls of `see`."
                )
            if parent is None:
                raise ForkError("Only a fork can be committed into its parent; this session has none.")
            for memory in (self._memory, parent._memory):
                memory.leave()
            change_together(partial(parent._go_on_from, self.state), self._memory.commit_fork_with)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._memory.leave()
            change_together(partial(self._go_on_from, DialogueState()), self._memory.clear_with)

    def contents(self) -> dict[str, Pieces]:
        """All keys and values, to be written piece by piece."""
        self._leave_lost_clip()
        return self._memory.contents()

    def restore(self, saved: SavedTensors, state: DialogueState) -> None:
        """Remember what `contents` wrote, with its state; only in a new memory."""
        with self._lock:
            self._memory.restore(saved)
            self._talk.become(_Talk(state))

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Hold it to read several things of the same moment."""
        return self._lock

    def close(self) -> None:
        """End it and give its places back; ending twice is fine."""
        self._memory.close()

    def __enter__(self) -> "DialogueMemory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _range_shift(self, grid_times_s: Sequence[float]) -> RangeShift | None:
        if not grid_times_s:
            return None
        return range_shift(
            self.state,
            grid_times_s,
            self.tokens,
            next_token=self.next_token,
            reach=self._setup.position_range,
            per_second=self._setup.family.positions_per_second,
            policy=self._setup.policy,
        )

    def _plan(self, build: Build, shift: RangeShift | None) -> _Step:
        """What is read and forgotten, nothing of it done yet; refused where there is no room or no position."""
        meanwhile, leaving = (self.state, []) if shift is None else (shift.after, shift.leaving)
        live, next_token = remaining(self.tokens, leaving), self.next_token
        inputs = build(meanwhile)
        after, num_places = inputs.state, self._setup.num_places
        evicted = leaving_for(
            after.segments, len(live) + inputs.num_tokens - num_places, num_places, self._setup.policy
        )
        if evicted:
            live = remaining(live, evicted)
            meanwhile, after = (without(state, evicted, live, next_token=next_token) for state in (meanwhile, after))
        inputs = placed(inputs, after, next_token=next_token)
        require_positions(inputs, self._setup.family.max_positions)
        return _Step(inputs, [*leaving, *evicted], meanwhile)

    def _read(
        self,
        transaction: Transaction,
        inputs: TokenInputs,
        meanwhile: DialogueState,
        recorder: AttentionRecorder | None = None,
    ) -> Read:
        if self._is_recorded(meanwhile):
            assert self._setup.reader is not None
            clip = TokenClip(inputs.embedded, inputs.rows, transaction, recorder, PastAndTail.of(transaction))
            (hidden,) = self._setup.reader.read([clip])
        else:
            recall = self.recall(transaction, meanwhile, recorder)
            hidden = self._setup.network.read(inputs.embedded, inputs.rows, recall)
        return Read(hidden, (partial(self._go_on_from, inputs.state), transaction.commit_with))

    def _is_recorded(self, meanwhile: DialogueState) -> bool:
        """Keys whose tokens have moved are turned on the way, for which there is no kernel."""
        return self._setup.reader is not None and not meanwhile.moved

    def _go_on_from(self, after: DialogueState, change: Change) -> None:
        """Change the state, as a part of a change; no question is forked meanwhile."""
        with self._lock:
            self._talk.become_with(_Talk(after), change)
