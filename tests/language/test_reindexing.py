"""Turns that leave: those that stay close up, as a slow twin has it that turns every raw key afresh for every read."""

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hearing import first_logits
from torch import Tensor

from longtake.attention.causal import CausalRecall
from longtake.errors import LongtakeError, TransactionError
from longtake.language.frames import PictureFormat, pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.network import Network
from longtake.language.positions import Piece, Text, VideoSpan, positions
from longtake.language.prompt_builder import StreamFormat, TokenInputs
from longtake.language.qwen2_5_vl import next_chunk, pieces_of, system_turn, turn_end, turn_question
from longtake.language.rope_shift import ShiftedRun, moved_back_by
from longtake.language.sampling import TextSampling
from longtake.memory.change import change_together
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Keep, Segment, SegmentPolicy
from longtake.runtime.answers import Answer, evidence
from longtake.runtime.dialogue import DialogueSession

SYSTEM, QUESTION = "w20 w21 w22 w23", "w80 w81"
SINK, TURN, EXTENT = 9, 19, 11
THREE = TextSampling(max_new_tokens=3)
RULES = [Window(anchors=0, window=2), Thinned(recent=1), Novel(recent=2)]


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> list[Tensor]:
    """Six pairs."""
    case = vlm_case("stream_eviction")
    return [case[f"frames_u8_{number}"] for number in range(6)]


@pytest.fixture
def open_turns(tiny_language: LanguageModel) -> Callable[..., DialogueSession]:
    """With room for four turns and 64 words beside those of questions."""
    num_tokens = SINK + 4 * TURN + 64 + 80
    return lambda **more: DialogueSession(
        tiny_language,
        budget_bytes=num_tokens * tiny_language.network.layout().bytes_per_slot,
        system=SYSTEM,
        answer_tokens=80,
        **{"stream_format": StreamFormat.TURNS, "retaining": Window(anchors=0, window=2)} | more,
    )


def show(session: DialogueSession, frames: list[Tensor], numbers: Sequence[int]) -> None:
    for number in numbers:
        session.see(frames[number % 6], [float(number), number + 0.5])


def keys_read(session: DialogueSession, layer: int = 0) -> Tensor:
    """Keys as a question would read them, in the order of the conversation."""
    with session._memory.fork() as fork, fork._memory.begin(1, Keep.NO) as transaction:
        recall = fork.recall(transaction, fork.state)
        keys = torch.cat([keys[0] for keys, _ in recall._seen("text", layer)])
    return keys[session._memory.tokens.argsort()]


def digest(session: DialogueSession) -> str:
    """Of stored keys and values in attention order, and of the state."""
    tokens, slab, hashed = (
        session._memory._memory.tokens("text"),
        session._memory._memory._pool.streams["text"].slab,
        hashlib.sha256(),
    )
    for storage in (*slab.keys, *slab.values):
        hashed.update(storage[torch.from_numpy(tokens.slot)].numpy().tobytes())
    state = session.state
    hashed.update(repr((state.next_position, state.segments, state.moved, tokens.frame.tolist())).encode())
    return hashed.hexdigest()


@dataclass
class Block:
    """Tokens that come or leave together: their pieces, and where their raw keys and values are, layer by layer."""

    name: float | str
    pieces: list[Piece]
    keys: list[Tensor]
    values: list[Tensor]
    num_tokens: int


class SlowTwin:
    """The text model by hand, in float64: a token stands where the rule puts it in a conversation of what is left.

    Raw keys of all live tokens are turned afresh whenever anything is read.
    """

    def __init__(self, language: LanguageModel) -> None:
        self.language, self.text = language, language.model.model.language_model
        self.blocks: list[Block] = []
        self.paid = torch.zeros(0, 0)
        """How much each token that was read last attended to each one, over heads and layers."""

    def turn(self, name: float, frames: Tensor) -> None:
        """A user's turn with frames, after the system's where it is the first."""
        language = self.language
        if not self.blocks:
            self.words("sink", system_turn(language.special_ids, language.required_tokenizer.encode(SYSTEM)))
        rows = pixel_rows(frames, PictureFormat().fit(84, 112))
        ids = next_chunk(language.special_ids, 12)
        embedded = language.network.embed(ids)[0]
        embedded[[token == language.special_ids.video_pad for token in ids]] = language.network.see(
            rows.values, rows.grid
        )[0]
        self.read(name, embedded, pieces_of(ids, language.special_ids, video_spans=[VideoSpan((0,), 3, 4)]))

    def words(self, name: str, ids: Sequence[int]) -> Tensor:
        return self.read(name, self.language.network.embed(ids)[0], [Text(len(ids))])

    def question(self) -> Tensor:
        """Logits right after it; it is not kept."""
        logits = self.words(
            "asked", turn_question(self.language.special_ids, self.language.required_tokenizer.encode(QUESTION))
        )
        self.blocks.pop()
        return logits[-1]

    def keep_only(self, session: DialogueSession) -> None:
        """Those turns that a session still has."""
        left = {segment.time_s for segment in session.state.segments}
        self.blocks = [block for block in self.blocks if isinstance(block.name, str) or block.name in left]

    @property
    def rows(self) -> Tensor:
        return torch.from_numpy(positions([piece for block in self.blocks for piece in block.pieces]).rows)

    @property
    def next_position(self) -> int:
        return positions([piece for block in self.blocks for piece in block.pieces]).next_position

    @torch.no_grad()
    def read(self, name: float | str, embedded: Tensor, pieces: list[Piece]) -> Tensor:
        """Logits after each of these tokens, which are kept."""
        block = Block(name, pieces, [], [], len(embedded))
        self.blocks.append(block)
        rows, hidden, num = self.rows, embedded, len(embedded)
        self.paid = torch.zeros(num, rows.shape[1], dtype=torch.float64)
        for number, layer in enumerate(self.text.layers):
            inner, attention = layer.input_layernorm(hidden), layer.self_attn
            q, k, v = (
                part(inner).unflatten(-1, (-1, 16)) for part in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            block.keys.append(k)
            block.values.append(v)
            keys = self.at(torch.cat([one.keys[number] for one in self.blocks]), rows)
            values = torch.cat([one.values[number] for one in self.blocks]).double()
            seen = self.attend(self.at(q, rows[:, -num:]), keys, values)
            hidden = hidden + attention.o_proj(seen.flatten(1).float())
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.language.network.logits(self.text.norm(hidden))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        num, total = len(q), len(keys)
        outs = []
        for head in range(4):
            logits = q[:, head] @ keys[:, head // 2].T / 4
            later = torch.ones(num, total, dtype=torch.bool).triu(total - num + 1)
            weights = logits.masked_fill(later, -math.inf).softmax(-1)
            self.paid += weights
            outs.append(weights @ values[:, head // 2])
        return torch.stack(outs, dim=1)

    def at(self, raw: Tensor, rows: Tensor) -> Tensor:
        """Keys or queries at these positions."""
        row = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])
        angle = rows[row].T.double() * 1e6 ** (-torch.arange(8, dtype=torch.float64) / 8)
        cos, sin = angle.cos().unsqueeze(1), angle.sin().unsqueeze(1)
        one, two = raw.double().chunk(2, dim=-1)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)

    def raw_keys(self, layer: int) -> Tensor:
        return torch.cat([block.keys[layer] for block in self.blocks])


def watch(session: DialogueSession, twin: SlowTwin, frames: list[Tensor], numbers: Sequence[int]) -> None:
    """Both see the same turns; what the session lets go for a turn is gone for the twin before it reads it."""
    for number in numbers:
        show(session, frames, [number])
        twin.keep_only(session)
        twin.turn(float(number), frames[number % 6])


@pytest.mark.parametrize("kind", ["keep", "reindex"])
def test_published_eviction_is_reproduced(
    kind: str,
    tiny_language: LanguageModel,
    frames: list[Tensor],
    vlm_case: Callable[[str], dict[str, Tensor]],
    vlm_index: dict[str, Any],
    open_turns: Callable[..., DialogueSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunk by chunk as the prompts were, the first with words behind its clip; what leaves does so before the next.

    Positions are kept where a segment says that nothing moves back for it.
    """
    case, said = vlm_case("stream_eviction"), vlm_index["stream_eviction"]
    log = [(entry["cache_len"], entry["next_position"]) for entry in said["log"][kind]]
    session, start = open_turns(), 0
    written: list[np.ndarray] = []
    stood: list[tuple[int, int]] = []
    read = Network.read

    def note(network: Network, embedded: Tensor, rows: np.ndarray, recall: CausalRecall) -> Tensor:
        """What is left when a chunk is read, and where the chunk stands."""
        stood.append((len(recall.transaction.past("text")), int(rows[0, 0])))
        written.append(rows)
        return read(network, embedded, rows, recall)

    monkeypatch.setattr(Network, "read", note)
    for number, length in enumerate([*said["chunk_lengths"], len(said["question_ids"])]):
        ids = case["input_ids"][start : start + length].tolist()
        inputs = chunk(session, tiny_language, ids, frames[number : number + 1], moves=kind == "reindex")
        hidden = session.append(inputs)
        if number:
            assert stood[-1] == log[number - 1]
        want = case[f"logits_{kind}"][start : start + length]
        assert (session._network.logits(hidden)[0, :, ::4] - want).abs().max() < 1e-4
        start += length
    assert stands(session) == log[-1]
    tokens = np.sort(session._memory.tokens)
    stand = np.concatenate(written, axis=1)[:, tokens] - moved_back_by(session.state.moved, tokens)
    assert stand.tolist() == case[f"positions_live_final_{kind}"].tolist()
    assert (keys_read(session) - case[f"kv_layer0_keys_final_{kind}"].transpose(0, 1)).abs().max() < 1e-5


def chunk(
    session: DialogueSession, language: LanguageModel, ids: list[int], clip: list[Tensor], *, moves: bool
) -> TokenInputs:
    state, special = session.state, language.special_ids
    place = positions(pieces_of(ids, special, video_spans=[VideoSpan((0,), 3, 4)] * len(clip)), state.next_position)
    after, embedded = replace(state, next_position=place.next_position), language.network.embed(ids)
    if not clip:
        return TokenInputs(embedded, place.rows, after)
    rows = pixel_rows(clip[0], PictureFormat().fit(84, 112))
    embedded[0, [token == special.video_pad for token in ids]] = language.network.see(rows.values, rows.grid)[0]
    start = SINK if state.next_position == 0 else 0
    extent = place.next_position - int(place.rows[0, start]) if moves else 0
    turn = Segment(first=start, num_tokens=len(ids) - start, time_s=0.0, novelty=1.0, extent=extent)
    return TokenInputs(embedded, place.rows, after, (turn,))


def stands(session: DialogueSession) -> tuple[int, int]:
    return session.info.num_tokens, session.info.next_position


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("num_turns", [3, 5, 9])
def test_turns_that_stay_are_read_as_if_written_where_they_stand(
    rule: SegmentPolicy,
    num_turns: int,
    open_turns: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, twin = open_turns(retaining=rule), SlowTwin(tiny_language)
    watch(session, twin, frames, range(num_turns))
    assert session.info.next_position == twin.next_position
    for layer in range(4):
        fresh = twin.at(twin.raw_keys(layer), twin.rows)
        assert (keys_read(session, layer) - fresh).abs().max() < 2e-5
    assert (first_logits(session, QUESTION, monkeypatch) - twin.question()).abs().max() < 1e-4


def test_thinned_past_moves_by_what_left_before_each(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    session = open_turns(retaining=Thinned(recent=1))
    show(session, frames, range(12))
    state = session.state
    moved = moved_back_by(state.moved, np.array([segment.first for segment in state.segments]))
    assert len(set(moved.tolist())) > 2
    assert session.info.num_forgotten == 12 - len(state.segments)


@pytest.mark.parametrize("rule", RULES)
def test_remembered_words_between_turns_close_up_too(
    rule: SegmentPolicy,
    open_turns: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They never leave: after the turns around them have, sink and words are one run of positions."""
    session, twin = open_turns(retaining=rule), SlowTwin(tiny_language)
    special, asked = tiny_language.special_ids, tiny_language.required_tokenizer.encode(QUESTION)
    for start in (0, 2, 4):
        watch(session, twin, frames, range(start, start + 2))
        answer = session.ask(QUESTION, THREE, remember=True)
        said = [token for token in answer.ids if token != special.im_end]
        twin.words("said", [*turn_question(special, asked), *said, *turn_end(special)])
        assert session.info.next_position == twin.next_position
        assert (first_logits(session, QUESTION, monkeypatch) - twin.question()).abs().max() < 1e-4
    watch(session, twin, frames, range(6, 12))
    assert session.info.next_position == twin.next_position
    assert (keys_read(session) - twin.at(twin.raw_keys(0), twin.rows)).abs().max() < 2e-5
    assert (first_logits(session, QUESTION, monkeypatch) - twin.question()).abs().max() < 1e-4


def test_positions_and_state_are_bounded_by_what_is_remembered(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    session = open_turns()
    show(session, frames, range(2))
    session.ask(QUESTION, THREE, remember=True)
    show(session, frames, range(2, 5))
    info, num_runs = session.info, len(session.state.moved)
    for number in range(5, 40):
        show(session, frames, [number])
        assert session.info.next_position == info.next_position
        assert session.info.num_tokens == info.num_tokens
        assert len(session.state.moved) <= num_runs
    words = info.num_tokens - SINK - 3 * TURN
    assert info.next_position == SINK + words + 3 * EXTENT


@pytest.mark.extra
def test_thousand_evictions_do_not_drift(
    open_turns: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, twin = open_turns(), SlowTwin(tiny_language)
    errors = []
    for number in range(1003):
        watch(session, twin, frames, [number])
        if number in (3, 4, 5, 1000, 1001, 1002):
            errors.append(float((first_logits(session, QUESTION, monkeypatch) - twin.question()).abs().max()))
    assert max(errors) < 1e-4
    assert session.info.num_forgotten == 1000


def test_questions_see_the_turns_of_their_moment_while_others_leave(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    session, silent = open_turns(), open_turns()
    for one in (session, silent):
        show(one, frames, range(6))
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    show(session, frames, range(6, 10))
    *_, answer = pieces
    assert isinstance(answer, Answer)
    alone = silent.ask(QUESTION, TextSampling(max_new_tokens=8))
    assert (answer.ids, answer.evidence) == (alone.ids, alone.evidence)
    show(silent, frames, range(6, 10))
    assert session.ask(QUESTION, THREE).ids == silent.ask(QUESTION, THREE).ids
    assert torch.equal(keys_read(session), keys_read(silent))


def test_questions_from_threads_while_turns_leave(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    asked, silent, said = open_turns(), open_turns(), []
    show(asked, frames, range(3))
    show(silent, frames, range(3))
    askers = [
        threading.Thread(target=lambda: said.extend(asked.ask(QUESTION, THREE) for _ in range(4))) for _ in range(2)
    ]
    for asker in askers:
        asker.start()
    show(asked, frames, range(3, 7))
    for asker in askers:
        asker.join()
    show(silent, frames, range(3, 7))
    assert len(said) == 8
    assert all(answer.ids for answer in said)
    assert torch.equal(keys_read(asked, 3), keys_read(silent, 3))
    assert asked.state.moved == silent.state.moved


def test_turn_that_fails_makes_no_other_leave_and_is_no_moment_to_ask(
    open_turns: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, twin = open_turns(), SlowTwin(tiny_language)
    watch(session, twin, frames, range(3))
    before, read = digest(session), session._network.read

    def ask(*_: Any) -> Tensor:
        monkeypatch.setattr(session._network, "read", read)
        return first_logits(session, QUESTION, monkeypatch)

    monkeypatch.setattr(session._network, "read", ask)
    with pytest.raises(TransactionError, match="commit or leave it before forking"):
        show(session, frames, [3])
    assert digest(session) == before
    watch(session, twin, frames, [4])
    assert (first_logits(session, QUESTION, monkeypatch) - twin.question()).abs().max() < 1e-4


def test_remembering_fails_in_a_sentence_when_turns_left_meanwhile(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    session = open_turns()
    show(session, frames, range(4))
    pieces = session.ask_stream(QUESTION, THREE, remember=True)
    next(pieces)
    show(session, frames, [4])
    before = digest(session)
    with pytest.raises(LongtakeError, match="moved on since"):
        list(pieces)
    assert digest(session) == before


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [StreamFormat.TURNS, StreamFormat.TIMED_TURNS])
def test_resumed_session_reads_the_same_to_the_bit(
    rule: SegmentPolicy,
    kind: StreamFormat,
    open_turns: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: list[Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = open_turns(retaining=rule, stream_format=kind)
    show(session, frames, range(4))
    session.ask(QUESTION, THREE, remember=True)
    show(session, frames, range(4, 8))
    session.save(tmp_path / "talk.safetensors")
    resumed = DialogueSession.resume(tmp_path / "talk.safetensors", tiny_language)
    for coming in ([], [8, 9, 10]):
        for one in (session, resumed):
            show(one, frames, coming)
        assert digest(resumed) == digest(session)
        assert torch.equal(keys_read(resumed, 3), keys_read(session, 3))
        assert torch.equal(first_logits(resumed, QUESTION, monkeypatch), first_logits(session, QUESTION, monkeypatch))


def test_questions_leave_stored_keys_and_state_identical_to_the_bit(
    open_turns: Callable[..., DialogueSession], frames: list[Tensor]
) -> None:
    asked, silent = open_turns(), open_turns()
    for number in range(7):
        show(asked, frames, [number])
        show(silent, frames, [number])
        asked.ask(QUESTION, THREE)
        asked.ask_choice(QUESTION, ["w72", "w154 w12"])
        assert digest(asked) == digest(silent)


def test_keys_in_memory_are_never_rewritten(open_turns: Callable[..., DialogueSession], frames: list[Tensor]) -> None:
    session = open_turns()
    written: dict[int, bytes] = {}
    for number in range(8):
        show(session, frames, [number])
        tokens, keys = (
            session._memory._memory.tokens("text"),
            session._memory._memory._pool.streams["text"].slab.keys[3],
        )
        for token, slot in zip(tokens.frame.tolist(), tokens.slot.tolist(), strict=True):
            assert written.setdefault(token, keys[slot].numpy().tobytes()) == keys[slot].numpy().tobytes()
    assert session.state.moved


def test_choices_and_evidence_are_those_of_the_slow_twin(
    open_turns: Callable[..., DialogueSession], tiny_language: LanguageModel, frames: list[Tensor]
) -> None:
    session, twin = open_turns(retaining=Thinned(recent=1)), SlowTwin(tiny_language)
    watch(session, twin, frames, range(8))
    special, words = tiny_language.special_ids, tiny_language.required_tokenizer
    asked = turn_question(special, words.encode(QUESTION))
    texts = ["w72", "w154 w12 w153"]
    for choice, text in zip(session.ask_choice(QUESTION, texts), texts, strict=True):
        ids = words.encode(text)
        said = twin.words("asked", [*asked, *ids])[len(asked) - 1 : -1].log_softmax(-1)
        twin.blocks.pop()
        wanted = float(sum(row[token] for row, token in zip(said, ids, strict=True)))
        assert choice.sum_log_likelihood == pytest.approx(wanted, abs=1e-4)
    answer = session.ask(QUESTION, THREE)
    twin.words("asked", [*asked, *answer.ids[:2]])
    attention_mass = twin.paid[-3:].sum(0)
    tokens = np.sort(session._memory.tokens)
    spans = evidence(session.state.segments, tokens, attention_mass[: len(tokens)].numpy(), until_s=7.5)
    found = answer.evidence
    assert [(span.start_s, span.end_s) for span in found] == [(span.start_s, span.end_s) for span in spans]
    assert [span.weight for span in found] == pytest.approx([span.weight for span in spans], abs=1e-5)


def test_reset_session_has_moved_nothing(open_turns: Callable[..., DialogueSession], frames: list[Tensor]) -> None:
    used, fresh = open_turns(), open_turns()
    show(used, frames, range(5))
    used.reset()
    for one in (used, fresh):
        show(one, frames, range(3))
    assert used.state.moved == ()
    assert digest(used) == digest(fresh)


@pytest.mark.parametrize("back", [10, 1000, -1000])
@pytest.mark.parametrize("kind", list(StreamFormat))
def test_all_moved_by_a_constant_leaves_what_is_said(
    back: int,
    kind: StreamFormat,
    open_turns: Callable[..., DialogueSession],
    frames: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sink too; positions below 0 are positions."""
    session = open_turns(stream_format=kind)
    show(session, frames, range(2))
    before = first_logits(session, QUESTION, monkeypatch)
    state = session.state
    runs = (ShiftedRun(0, back), ShiftedRun(session._memory.next_token, 0))
    moved = replace(state, next_position=state.next_position - back, moved=runs)
    change_together(session._memory.hold(moved))
    after = first_logits(session, QUESTION, monkeypatch)
    assert not torch.equal(after, before)
    assert (after - before).abs().max() < 1e-3
