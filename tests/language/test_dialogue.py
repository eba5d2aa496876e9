"""Questions about a running video: equal to the plain model on the video so far, and without a trace in it."""

import copy
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hearing import first_logits, limit_positions
from selected import rest_in_extra
from torch import Tensor
from transformers import Qwen2_5_VLForConditionalGeneration

from longtake.attention.causal import CausalRecall
from longtake.attention.triton import TritonBackend
from longtake.errors import InputError, LongtakeError, MemoryFullError, SavedSessionError
from longtake.language.frames import PictureFormat, PixelRows, pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.positions import VideoSpan, positions
from longtake.language.prompt_builder import StreamFormat
from longtake.language.qwen2_5_vl import clip_question, first_chunk, next_chunk, open_clip, pieces_of, turn_question
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import Tokenizer
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Segment, SegmentPolicy
from longtake.memory.saved import write_tensors
from longtake.runtime.answers import Answer, DialogueInfo, Ending
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.dialogue_memory import DialogueMemory, Feed

GOLDEN = Path(__file__).parent.parent / "golden" / "vlm"
INDEX = json.loads((GOLDEN / "index.json").read_text())
OPEN = INDEX["cases"]["stream_open_clip"]
SYSTEM, QUESTION = "w20 w21 w22 w23", "w80 w81"
TWELVE = TextSampling(max_new_tokens=12)
BUDGET = 4_000_000


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> Tensor:
    return next(value for name, value in vlm_case("stream_open_clip").items() if name.startswith("frames_u8"))


@pytest.fixture
def open_dialogue(tiny_language: LanguageModel) -> Callable[..., DialogueSession]:
    return lambda **more: DialogueSession(tiny_language, budget_bytes=BUDGET, system=SYSTEM, **more)


def times(start: int, stop: int, fps: float = 2.0) -> list[float]:
    return [index / fps for index in range(start, stop)]


def show(session: DialogueSession, frames: Tensor, sizes: list[int], start: int = 0) -> None:
    for size in sizes:
        session.see(frames[start : start + size], times(start, start + size))
        start += size


def digest(session: DialogueSession) -> str:
    """Of every key and value remembered, in attention order, and of all that decides the next token."""
    memory, hashed = session._memory._memory, hashlib.sha256()
    slot = torch.from_numpy(memory.tokens("text").slot)
    slab = memory._pool.streams["text"].slab
    for storage in (*slab.keys, *slab.values):
        hashed.update(storage[slot].numpy().tobytes())
    hashed.update(repr((session.state.next_position, session.state.clip, session.state.held_s)).encode())
    return hashed.hexdigest()


def test_greedy_answers_after_each_append_are_those_of_the_native_prompt(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, seen = open_dialogue(), 0
    for number, size in enumerate(OPEN["append_sizes"]):
        show(session, frames, [size], seen)
        seen += size
        answer = session.ask(QUESTION, TWELVE)
        assert list(answer.ids) == OPEN["greedy"][f"after_append_{number}"]["tokens"]
        assert answer.seen_until_s == (seen - 1) / 2
        assert answer.ending is Ending.LENGTH


def test_a_past_that_is_read_in_place_gives_the_same_answers_and_evidence(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    block_by_block, in_place = open_dialogue(), open_dialogue(backend=TritonBackend())
    for session in (block_by_block, in_place):
        show(session, frames, [4, 2, 2])
    want, got = (session.ask(QUESTION, TWELVE) for session in (block_by_block, in_place))
    assert got.ids == want.ids
    assert [each.start_s for each in got.evidence] == [each.start_s for each in want.evidence]
    both = [session.ask_choice(QUESTION, ["w30 w40", "w50 w60"]) for session in (block_by_block, in_place)]
    scores = [[choice.sum_log_likelihood for choice in choices] for choices in both]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize("sizes", [[12], [2] * 6, [1] * 12, [3, 3, 5, 1], [7, 5]])
def test_any_chunks_give_the_same_answer(
    sizes: list[int], open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_dialogue()
    show(session, frames, sizes)
    assert list(session.ask(QUESTION, TWELVE).ids) == OPEN["greedy"]["after_append_3"]["tokens"]


def test_open_clip_equals_the_native_prompt_after_each_append(
    open_dialogue: Callable[..., DialogueSession],
    frames: Tensor,
    vlm_case: Callable[[str], dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, seen = open_dialogue(), 0
    for number, size in enumerate(OPEN["append_sizes"]):
        show(session, frames, [size], seen)
        seen += size
        want = vlm_case("stream_open_clip")[f"native_last_logits_{number}"]
        assert (first_logits(session, QUESTION, monkeypatch) - want).abs().max() < 1e-4


def plain_logits(language: LanguageModel, ids: list[int], films: list[VideoSpan], pixels: list[PixelRows]) -> Tensor:
    """One forward of the library over a whole prompt, with our positions: the slow twin."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(GOLDEN, dtype=torch.float32).eval()
    assert language.special is not None
    place = positions(pieces_of(ids, language.special, video_spans=films))
    with torch.no_grad():
        said = model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.from_numpy(place.rows)[:, None],
            pixel_values_videos=torch.cat([rows.values for rows in pixels]),
            video_grid_thw=torch.tensor([rows.grid for rows in pixels]),
            use_cache=False,
        )
    logits: Tensor = said.logits[0, -1]
    return logits


@pytest.mark.parametrize("sizes", [[4], [2, 4, 2], [4, 2, 2, 4]])
def test_turns_equal_one_forward_over_the_whole_conversation(
    sizes: list[int],
    open_dialogue: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = open_dialogue(stream_format=StreamFormat.TURNS)
    special, fit = tiny_language.special_ids, PictureFormat().fit(84, 112)
    ids, films, pixels, start = [], [], [], 0
    for number, size in enumerate(sizes):
        show(session, frames, [size], start)
        tokens = size // 2 * 12
        system = tiny_language.required_tokenizer.encode(SYSTEM)
        ids += next_chunk(special, tokens) if number else first_chunk(special, tokens, system=system)
        films.append(VideoSpan(tuple(range(0, size, 2)), 3, 4))
        pixels.append(pixel_rows(frames[start : start + size], fit))
        start += size
    ids += turn_question(special, tiny_language.required_tokenizer.encode(QUESTION))
    heard = first_logits(session, QUESTION, monkeypatch)
    assert (heard - plain_logits(tiny_language, ids, films, pixels)).abs().max() < 1e-4


@pytest.mark.parametrize(
    "sizes", rest_in_extra([[8, 6, 7], [1, 4, 3, 1, 1, 1, 2, 5, 2, 1], [21], [2] * 9 + [3]], keep=2)
)
def test_one_three_and_ten_chunks_at_mixed_rates_equal_one_native_forward(
    sizes: list[int],
    open_dialogue: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four frames a second, then two, a pause, then one; the last frame has no partner."""
    many = torch.cat([frames, frames.flip(-1)])[:21]
    at_s = [*(at / 4 for at in range(8)), *(2 + at / 2 for at in range(6)), *(12.0 + at for at in range(7))]
    session, start = open_dialogue(), 0
    for size in sizes:
        session.see(many[start : start + size], at_s[start : start + size])
        start += size
    special, words = tiny_language.special_ids, tiny_language.required_tokenizer
    film = VideoSpan(tuple(int(2 * first_s) for first_s in at_s[::2]), 3, 4)
    clip = [*open_clip(special, words.encode(SYSTEM)), *[special.video_pad] * film.num_tokens]
    ids = [*clip, *clip_question(special, words.encode(QUESTION))]
    pixels = [pixel_rows(many, PictureFormat().fit(84, 112), pad=True)]
    assert (
        first_logits(session, QUESTION, monkeypatch) - plain_logits(tiny_language, ids, [film], pixels)
    ).abs().max() < 1e-4
    said: list[int] = []
    for _ in range(6):
        logits = plain_logits(tiny_language, [*ids, *said], [film], pixels)
        logits[list(tiny_language.suppressed_ids)] = -torch.inf
        said.append(int(logits.argmax()))
    assert list(session.ask(QUESTION, TextSampling(max_new_tokens=6)).ids) == said


def test_answer_is_what_the_library_generates_where_its_positions_are_right(
    open_dialogue: Callable[..., DialogueSession], tiny_language: LanguageModel, frames: Tensor
) -> None:
    """A clip that lasts no longer than it is wide; the library goes on by its own cache and `rope_deltas`."""
    session = open_dialogue()
    show(session, frames, [2, 2])
    special, words = tiny_language.special_ids, tiny_language.required_tokenizer
    opening, question = open_clip(special, words.encode(SYSTEM)), clip_question(special, words.encode(QUESTION))
    pixels = pixel_rows(frames[:4], PictureFormat().fit(84, 112))
    kinds = [[0] * len(opening) + [2] * 24 + [0] * len(question)]
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(GOLDEN, dtype=torch.float32).eval()
    told = model.generate(
        input_ids=torch.tensor([[*opening, *[special.video_pad] * 24, *question]]),
        attention_mask=torch.ones(1, len(kinds[0]), dtype=torch.long),
        mm_token_type_ids=torch.tensor(kinds),
        pixel_values_videos=pixels.values,
        video_grid_thw=torch.tensor([pixels.grid]),
        second_per_grid_ts=torch.tensor([1.0]),
        max_new_tokens=12,
        do_sample=False,
        suppress_tokens=sorted(tiny_language.suppressed_ids),
        eos_token_id=sorted(tiny_language.eos_ids),
        pad_token_id=0,
    )
    assert told[0, len(kinds[0]) :].tolist() == list(session.ask(QUESTION, TWELVE).ids)


def test_sessions_of_one_model_do_not_know_of_each_other(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    films = (frames, frames.flip(-1))
    alone = [open_dialogue() for _ in films]
    for session, film in zip(alone, films, strict=True):
        show(session, film, [2, 4, 2])
    together = [open_dialogue() for _ in films]
    for start, size in ((0, 2), (2, 4), (6, 2)):
        for session, film in zip(together, films, strict=True):
            show(session, film, [size], start)
    streams = [session.ask_stream(QUESTION, TWELVE) for session in together]
    asked = [said for step in zip(*streams, strict=False) for said in step]
    assert asked
    assert [digest(session) for session in together] == [digest(session) for session in alone]
    assert [session.ask(QUESTION, TWELVE).ids for session in together] == [
        session.ask(QUESTION, TWELVE).ids for session in alone
    ]


def test_timed_turns_say_the_time(open_dialogue: Callable[..., DialogueSession], frames: Tensor) -> None:
    plain, timed = (open_dialogue(stream_format=kind) for kind in (StreamFormat.TURNS, StreamFormat.TIMED_TURNS))
    for session in (plain, timed):
        show(session, frames, [2, 2])
    assert timed.info.num_tokens == plain.info.num_tokens + 2  # one unknown word for each time, to this tokenizer


def test_odd_frame_is_shown_twice_on_the_fork_alone(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    odd, padded = open_dialogue(), open_dialogue()
    show(odd, frames, [5])
    show(padded, frames[:4], [4])
    padded.see(frames[4:5].expand(2, -1, -1, -1), [2.0, 2.4])
    before = digest(odd)
    assert odd.ask(QUESTION, TWELVE).ids == padded.ask(QUESTION, TWELVE).ids
    assert digest(odd) == before
    show(odd, frames, [7], start=5)
    assert list(odd.ask(QUESTION, TWELVE).ids) == OPEN["greedy"]["after_append_3"]["tokens"]


def test_forgotten_grids_are_gone_and_no_other(
    open_dialogue: Callable[..., DialogueSession], tiny_language: LanguageModel, frames: Tensor
) -> None:
    """With room for two grids, a session is as one network that cannot see the others when a token is read."""
    small = DialogueSession(
        tiny_language, budget_bytes=BUDGET, system=SYSTEM, retaining=Window(anchors=0, window=1), answer_tokens=64
    )
    show(small, frames, [2] * 6)
    assert small.info.num_tokens == len(OPEN["prefix_ids"]) + 2 * 12
    assert [segment.time_s for segment in small.state.segments] == [4.0, 5.0]
    assert small.info.next_position == open_and_info(open_dialogue(), frames).next_position
    tokens = small._memory._memory.tokens("text")
    assert sorted(tokens.frame.tolist()) == [*range(13), *range(13 + 4 * 12, 13 + 6 * 12)]


def open_and_info(session: DialogueSession, frames: Tensor) -> DialogueInfo:
    show(session, frames, [len(frames)])
    return session.info


def test_what_was_forgotten_is_not_seen_and_the_rest_is_as_if_masked(
    tiny_language: LanguageModel, frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow twin: one forward of the library under a mask that says what was there when each token was read."""
    session = DialogueSession(tiny_language, budget_bytes=BUDGET, system=SYSTEM, retaining=Window(anchors=0, window=1))
    ids = [*OPEN["prefix_ids"], *[tiny_language.special_ids.video_pad] * 72, *OPEN["question_suffix_ids"]]
    show(session, frames, [2] * 6)
    heard = first_logits(session, QUESTION, monkeypatch)
    size, sink = len(ids), len(OPEN["prefix_ids"])
    sees = torch.ones(size, size, dtype=torch.bool).tril()
    for grid in range(4):  # the last two are there when the question comes
        gone = slice(sink + grid * 12, sink + (grid + 1) * 12)
        sees[sink + (grid + 2) * 12 :, gone] = False
    rows = pixel_rows(frames, PictureFormat().fit(84, 112))
    place = positions(pieces_of(ids, tiny_language.special_ids, video_spans=[VideoSpan((0, 2, 4, 6, 8, 10), 3, 4)]))
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(GOLDEN, dtype=torch.float32).eval()
    mask = torch.zeros(1, 1, size, size).masked_fill(~sees, torch.finfo(torch.float32).min)
    with torch.no_grad():
        embedded = model.get_input_embeddings()(torch.tensor([ids]))
        embedded[0, sink : sink + 72] = torch.cat(
            list(model.model.get_video_features(rows.values, torch.tensor([rows.grid])).pooler_output)
        )
        hidden = model.model.language_model(
            inputs_embeds=embedded,
            position_ids=torch.from_numpy(place.rows)[:, None],
            attention_mask={"full_attention": mask},
            use_cache=False,
        ).last_hidden_state
        want = model.lm_head(hidden[0, -1])
    assert (heard - want).abs().max() < 1e-4


@pytest.mark.extra
@pytest.mark.parametrize("rule", [Window.for_dialogue(), Window(anchors=0, window=4), Thinned(recent=3)])
def test_long_video_stays_within_its_budget(rule: SegmentPolicy, tiny_language: LanguageModel, frames: Tensor) -> None:
    layout = tiny_language.network.layout()
    budget = (13 + 10 * 12 + 40) * layout.bytes_per_slot
    session = DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, retaining=rule, answer_tokens=40)
    declared = session.info.num_bytes
    assert declared <= budget
    for step in range(60):
        session.see(frames[2 * (step % 6) : 2 * (step % 6) + 2], [step * 1.0, step + 0.5])
        assert session.info.live_bytes <= declared - 40 * layout.bytes_per_slot
        assert session.info.num_bytes == declared
        if step % 10 == 9:
            answer = session.ask(QUESTION, TextSampling(max_new_tokens=4))
            assert answer.ending in Ending
            assert not set(answer.ids) & set(tiny_language.suppressed_ids)
    assert session.info.next_position < 13 + 2 * 60 + 8


def first_queries(session: DialogueSession, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """What the question's tokens ask for in the first layer: token, head of keys, the heads that share it, channel."""
    asked: list[Tensor] = []
    attend = CausalRecall.attend

    def listen(self: CausalRecall, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if layer == 0:
            asked.append(q)
        return attend(self, stream, layer, q, k, v)

    with monkeypatch.context() as patch:
        patch.setattr(CausalRecall, "attend", listen)
        session.ask(QUESTION, TextSampling(max_new_tokens=1))
    return asked[0][0].unflatten(1, (2, 2))


def plant(session: DialogueSession, place: int, wanted: Tensor, length: float = 100.0) -> Segment:
    """All keys of one grid in the first layer, turned to what is wanted."""
    segment, tokens = session.state.segments[place], session._memory._memory.tokens("text")
    inside = (tokens.frame >= segment.first) & (tokens.frame < segment.first + segment.num_tokens)
    slab = session._memory._memory._pool.streams["text"].slab
    slab.keys[0][torch.from_numpy(tokens.slot[inside])] = length * wanted / wanted.norm(dim=-1, keepdim=True)
    return segment


@pytest.mark.parametrize("planted", [1, 4])
def test_evidence_is_where_attention_was_planted(
    planted: int, open_dialogue: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of one grid are turned to what the token before the answer asks for."""
    session = open_dialogue()
    show(session, frames, [2] * 6)
    segment = plant(session, planted, first_queries(session, monkeypatch)[-1].mean(dim=1))
    spans = session.ask(QUESTION, TextSampling(max_new_tokens=1)).evidence
    assert spans[0].start_s <= segment.time_s < spans[0].end_s
    assert sum(span.weight for span in spans) == pytest.approx(1)


def test_a_frame_that_waits_for_its_partner_is_evidence_too(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys, which are read with the question, are turned to what the token before the answer asks for."""
    session = open_dialogue()
    show(session, frames, [2, 2, 2, 1])
    num_tokens, attend = session.state.segments[0].num_tokens, CausalRecall.attend

    def planting(self: CausalRecall, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if layer == 0:
            wanted = q[:, -1:].unflatten(2, (2, 2)).mean(dim=3)
            k = torch.cat([100 * wanted.expand(-1, num_tokens, -1, -1), k[:, num_tokens:]], dim=1)
        return attend(self, stream, layer, q, k, v)

    monkeypatch.setattr(CausalRecall, "attend", planting)
    top, *rest = session.ask(QUESTION, TextSampling(max_new_tokens=1)).evidence
    assert top.start_s == top.end_s == session.info.seen_until_s
    assert sum(span.weight for span in (top, *rest)) == pytest.approx(1)


def test_what_the_questions_words_attend_to_is_no_evidence(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another grid is turned to what the words ask for, as far as the token before the answer asks for none of it."""
    session = open_dialogue()
    show(session, frames, [2] * 6)
    queries = first_queries(session, monkeypatch)
    words, last = queries[:-1].mean(dim=(0, 2)), queries[-1]
    own = last.mT @ torch.linalg.pinv(last.mT)  # onto what the last token asks for, by head of keys
    plant(session, 4, words - (own @ words.unsqueeze(-1)).squeeze(-1), length=1000.0)
    segment = plant(session, 1, last.mean(dim=1))
    spans = session.ask(QUESTION, TextSampling(max_new_tokens=1)).evidence
    assert spans[0].start_s <= segment.time_s < spans[0].end_s


def test_evidence_of_an_answer_without_video_is_empty(open_dialogue: Callable[..., DialogueSession]) -> None:
    assert open_dialogue().ask(QUESTION, TextSampling(max_new_tokens=1)).evidence == ()


@pytest.mark.parametrize("rule", rest_in_extra([Window(anchors=0, window=2), Novel(recent=1), KeepAll()], keep=1))
@pytest.mark.parametrize("kind", list(StreamFormat))
def test_resumed_dialogue_goes_on_as_if_it_had_never_stopped(
    rule: SegmentPolicy,
    kind: StreamFormat,
    open_dialogue: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: Tensor,
    tmp_path: Path,
) -> None:
    session = open_dialogue(retaining=rule, stream_format=kind)
    show(session, frames, [2, 3, 2])  # one frame waits for its partner
    session.ask(QUESTION, TextSampling(max_new_tokens=2), remember=kind is StreamFormat.TURNS)
    session.save(tmp_path / "talk.safetensors")
    resumed = DialogueSession.resume(tmp_path / "talk.safetensors", tiny_language)
    for other in (session, resumed):
        show(other, frames, [3, 2], start=7)
    assert digest(resumed) == digest(session)
    assert resumed.ask(QUESTION, TWELVE).ids == session.ask(QUESTION, TWELVE).ids


def test_file_that_is_no_dialogue_or_of_other_weights_is_refused(
    open_dialogue: Callable[..., DialogueSession], tiny_language: LanguageModel, tmp_path: Path
) -> None:
    path = tmp_path / "talk.safetensors"
    open_dialogue().save(path)
    other = copy.deepcopy(tiny_language.model)
    other.lm_head.weight.data += 1
    with pytest.raises(SavedSessionError, match="other weights"):
        DialogueSession.resume(path, replace(tiny_language, model=other))
    write_tensors(path, {}, {"format": 2})
    with pytest.raises(SavedSessionError, match="another kind of session"):
        DialogueSession.resume(path, tiny_language)
    write_tensors(path, {}, {"kind": "dialogue", "format": 1, "longtake": "0.1"})
    with pytest.raises(
        SavedSessionError, match=r"of format 2 in .*, but got 1; resume it with the longtake that wrote"
    ):
        DialogueSession.resume(path, tiny_language)


def test_more_frames_at_once_than_the_memory_holds_come_in_parts(tiny_language: LanguageModel, frames: Tensor) -> None:
    budget = (13 + 4 * 12 + 40) * tiny_language.network.layout().bytes_per_slot
    at_once, little = (
        DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=40) for _ in range(2)
    )
    show(at_once, frames, [12])
    show(little, frames, [2] * 6)
    assert digest(at_once) == digest(little)
    assert at_once.info.num_forgotten == 2
    assert at_once.info.num_tokens == 13 + 4 * 12


def test_memory_that_is_full_and_lets_nothing_leave_says_so(tiny_language: LanguageModel, frames: Tensor) -> None:
    budget = (13 + 2 * 12 + 40) * tiny_language.network.layout().bytes_per_slot
    session = DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=40, retaining=KeepAll())
    show(session, frames, [2, 2])
    before = digest(session)
    with pytest.raises(MemoryFullError, match="12 more than are left"):
        show(session, frames, [2], start=4)
    assert digest(session) == before
    assert session.ask(QUESTION, TextSampling(max_new_tokens=2)).ids


def test_clip_moved_back_in_time_is_the_prompt_of_a_video_that_began_later(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first layer, whose keys depend on nothing but pixels and positions, to rounding."""
    late, fresh = (open_dialogue(retaining=Window(anchors=0, window=2)) for _ in range(2))
    for step in range(4):
        late.see(frames[2 * step : 2 * step + 2], [1000.0 * step, 1000.0 * step + 0.5])
    limit_positions(late, 7000)
    late.see(frames[8:10], [4000.0, 4000.5])
    assert late.info.next_position < 7000
    for step in range(1, 5):  # the oldest grid that was remembered when the range was reached is the first
        fresh.see(frames[2 * step : 2 * step + 2], [1000.0 * step, 1000.0 * step + 0.5])
    for one in (late, fresh):
        assert [segment.time_s for segment in one.state.segments] == [2000.0, 3000.0, 4000.0]
    assert late.info.next_position == fresh.info.next_position
    keys = []
    for one in (late, fresh):
        tokens = one._memory._memory.tokens("text")
        order = tokens.frame.argsort()
        keys.append(one._memory._memory._pool.streams["text"].slab.keys[0][torch.from_numpy(tokens.slot[order])])
    assert torch.allclose(keys[0], keys[1], atol=2e-3)
    assert (keys[0] - keys[1]).abs().mean() < 1e-4


@pytest.mark.extra
def test_hours_of_video_stay_within_the_range_of_positions(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_dialogue(retaining=Window(anchors=0, window=3))
    limit_positions(session, 200)
    for step in range(300):
        session.see(frames[2 * (step % 6) : 2 * (step % 6) + 2], [step * 1.0, step + 0.5])
        assert session.info.next_position <= 200 + 3
    assert session.info.num_tokens == 13 + 4 * 12
    assert session.ask(QUESTION, TextSampling(max_new_tokens=3)).seen_until_s == 299.5


def test_questions_leave_the_memory_identical_to_the_bit(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    asked, silent = open_dialogue(), open_dialogue()
    for start in range(0, 12, 2):
        show(asked, frames, [2], start)
        show(silent, frames, [2], start)
        for number in range(5):
            asked.ask(f"w{60 + number} w70", TextSampling(max_new_tokens=3))
        asked.ask_choice(QUESTION, ["w72", "w154 w12"])
        assert digest(asked) == digest(silent)


def test_questions_from_threads_while_frames_arrive(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    asked, silent = open_dialogue(), open_dialogue()
    problems: list[BaseException] = []

    def keep_asking(number: int) -> None:
        try:
            for turn in range(6):
                assert asked.ask(f"w{60 + number} w{70 + turn}", TextSampling(max_new_tokens=4)).ids
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            problems.append(error)

    show(asked, frames, [2])
    show(silent, frames, [2])
    askers = [threading.Thread(target=keep_asking, args=(number,)) for number in range(3)]
    for asker in askers:
        asker.start()
    for start in range(2, 12, 2):
        show(asked, frames, [2], start)
        show(silent, frames, [2], start)
    for asker in askers:
        asker.join()
    assert not problems
    assert digest(asked) == digest(silent)


def test_question_left_early_or_failing_leaves_nothing_behind(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_dialogue()
    show(session, frames, [4])
    before = digest(session)
    pieces = session.ask_stream(QUESTION, TWELVE)
    next(pieces)
    pieces.close()
    with monkeypatch.context() as patch:
        patch.setattr(session._network, "logits", _fail)
        with pytest.raises(RuntimeError, match="broken"):
            session.ask(QUESTION)
    assert digest(session) == before
    use = session._memory.use()
    assert use.held == use.staged == 0
    assert use.live == session.info.num_tokens == len(session._memory._memory.tokens("text"))
    assert list(session.ask(QUESTION, TWELVE).ids) == list(open_and_ask(open_dialogue(), frames[:4]).ids)


def _fail(*_: object) -> None:
    raise RuntimeError("broken")


def open_and_ask(session: DialogueSession, frames: Tensor) -> Answer:
    show(session, frames, [len(frames)])
    return session.ask(QUESTION, TWELVE)


def test_streamed_text_is_the_answer(open_dialogue: Callable[..., DialogueSession], frames: Tensor) -> None:
    session = open_dialogue()
    show(session, frames, [2])
    *pieces, answer = session.ask_stream(QUESTION, TWELVE)
    assert isinstance(answer, Answer)
    assert "".join(map(str, pieces)) == answer.text == str(answer)
    assert answer.text.split() == [f"w{token}" for token in answer.ids]
    timing = answer.timing
    assert 0 <= timing.fork_s <= timing.first_token_s <= timing.total_s
    assert timing.tokens_per_s is not None


def test_remembered_question_stays_and_more_frames_open_a_new_clip(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, twin = open_dialogue(), open_dialogue()
    for other in (session, twin):
        show(other, frames, [4])
    length, place = session.info.num_tokens, session.info.next_position
    answer = session.ask(QUESTION, TextSampling(max_new_tokens=3), remember=True)
    assert answer.ids == twin.ask(QUESTION, TextSampling(max_new_tokens=3)).ids
    added = 8 + len(answer.ids) + 2  # the question's suffix, the answer, the end of its turn
    assert session.info.num_tokens == length + added
    assert session.info.next_position == place + added
    show(session, frames, [4], start=4)
    assert session.info.num_tokens == length + added + 4 + 2 * 12  # start of a user's turn, and two grids
    assert session.ask(QUESTION, TWELVE).ids != open_and_ask(open_dialogue(), frames[:8]).ids


def test_remembering_fails_in_a_sentence_when_frames_came_meanwhile(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_dialogue()
    show(session, frames, [2])
    pieces = session.ask_stream(QUESTION, TWELVE, remember=True)
    next(pieces)
    show(session, frames, [2], start=2)
    before = digest(session)
    with pytest.raises(LongtakeError, match="moved on since"):
        list(pieces)
    assert digest(session) == before


def test_choices_are_scored_as_one_by_one(
    open_dialogue: Callable[..., DialogueSession], tiny_language: LanguageModel, frames: Tensor
) -> None:
    session = open_dialogue()
    show(session, frames, [6])
    choices = ["w72", "w154 w12 w153 w180", "w71 w72"]
    together = session.ask_choice(QUESTION, choices)
    for choice, text in zip(together, choices, strict=True):
        alone = next(one for one in session.ask_choice(QUESTION, [text, "w99"]) if one.text == text)
        assert choice.sum_log_likelihood == pytest.approx(alone.sum_log_likelihood, abs=1e-4)
        assert choice.mean_log_likelihood == pytest.approx(choice.sum_log_likelihood / len(text.split()))


def test_letters_are_weighed_by_the_first_token(
    tiny_language: LanguageModel,
    make_byte_tokenizer: Callable[[], Any],
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spelling = replace(tiny_language, tokenizer=Tokenizer(make_byte_tokenizer()))  # it knows letters
    session = DialogueSession(spelling, budget_bytes=BUDGET, system=SYSTEM)
    show(session, frames, [4])
    before = digest(session)
    monkeypatch.setattr(session, "_first_ids", lambda letter: {"A": [72], "B": [154], "C": [71, 12]}[letter])
    found = session.ask_letter(QUESTION, ["w90", "w91", "w92"])
    assert [choice.letter for choice in found] == ["A", "B", "C"]
    assert sum(choice.share for choice in found) == pytest.approx(1)
    assert len({choice.share for choice in found}) == 3
    assert digest(session) == before
    with pytest.raises(InputError, match="two choices or more"):
        session.ask_letter(QUESTION, ["w90"])


def test_without_video_the_words_alone_are_answered_and_that_is_said(
    open_dialogue: Callable[..., DialogueSession],
) -> None:
    answer = open_dialogue().ask(QUESTION, TextSampling(max_new_tokens=2))
    assert answer.seen_until_s is None
    assert len(answer.ids) == 2


def test_reset_session_is_like_new(open_dialogue: Callable[..., DialogueSession], frames: Tensor) -> None:
    used, fresh = open_dialogue(), open_dialogue()
    show(used, frames, [6])
    used.reset()
    assert used.info.num_tokens == 0
    show(used, frames, [4])
    show(fresh, frames, [4])
    assert digest(used) == digest(fresh)


@pytest.mark.parametrize(
    ("do", "sentence"),
    [
        (lambda session, frames: session.ask("  "), "words in it"),
        (lambda session, frames: session.ask_choice("w80", ["w1"]), "two choices or more"),
        (lambda session, frames: session.ask_choice("w80", ["w1", "w1"]), "all different"),
        (lambda session, frames: session.ask_choice("w80", []), "two choices or more"),
        (lambda session, frames: session.see(frames[:, :, :56], [9.0] * 12), "112x84 as its first one"),
        (lambda session, frames: session.see(frames[:1], [0.5]), "must rise, but 0.5 s came after 1.5 s"),
        (lambda session, frames: session.see(frames[:2], [9.0, 9.0]), "must rise"),
        (lambda session, frames: session.see(frames[:2], [9.0]), "a time for each of 2 frames"),
        (lambda session, frames: session.see(frames[:0], []), "one frame at least"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_the_session_as_it_was(
    do: Callable[[DialogueSession, Tensor], Any],
    sentence: str,
    open_dialogue: Callable[..., DialogueSession],
    frames: Tensor,
) -> None:
    session = open_dialogue()
    show(session, frames, [4])
    before = digest(session)
    with pytest.raises(InputError, match=sentence):
        do(session, frames)
    assert digest(session) == before


def test_fork_takes_no_longer_from_a_hundred_times_the_tokens(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    """What a fork makes is counted, not timed: no array as long as the memory."""
    session = open_dialogue()
    show(session, frames, [12])
    with session._memory.fork() as fork:
        assert fork._memory._live["text"][0].borrowed[0].slot is session._memory._memory._live["text"][0].retained.slot


def test_answers_to_several_questions_are_those_to_each_and_leave_no_trace(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_dialogue()
    show(session, frames, [4, 3])
    before = digest(session)
    questions = [QUESTION, "w82 w83 w84", "w90"]
    for sampling in (TWELVE, TextSampling(max_new_tokens=5, temperature=1.0, seed=3)):
        alone = [session.ask(question, sampling) for question in questions]
        together = session.ask_together(questions, sampling)
        assert [(each.ids, each.text, each.evidence) for each in together] == [
            (each.ids, each.text, each.evidence) for each in alone
        ]
    assert session.ask_together([]) == []
    assert digest(session) == before
    with pytest.raises(InputError, match="words in it"):
        session.ask_together([QUESTION, " "])
    session.close()
    with pytest.raises(InputError, match="closed"):
        session.ask_together([])


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Answers are written as where they share passes; how many at each step."""
    feed, sizes = DialogueMemory.feed_together, []

    def feed_and_count(feeds: list[Feed]) -> list[Tensor]:
        sizes.append(len(feeds))
        return feed(feeds)

    monkeypatch.setattr(DialogueMemory, "shares_passes", property(lambda _: True))
    monkeypatch.setattr(DialogueMemory, "feed_together", staticmethod(feed_and_count))
    return sizes


def test_answers_that_are_written_side_by_side_are_told_one_after_another(
    open_dialogue: Callable[..., DialogueSession], frames: Tensor, side_by_side: list[int]
) -> None:
    session, questions = open_dialogue(), [QUESTION, "w82 w83 w84", "w90"]
    show(session, frames, [4, 3])
    before, alone = digest(session), [session.ask(question, TWELVE) for question in questions]
    side_by_side.clear()
    pieces = session.ask_together_stream(questions, TWELVE)
    first, num_steps = next(pieces), len(side_by_side)
    assert (first, num_steps) == (alone[0].text.split()[0], 1)
    told = [first, *pieces]
    assert side_by_side == [3] * 12
    for answer in alone:
        place = next(number for number, piece in enumerate(told) if isinstance(piece, Answer))
        assert "".join(map(str, told[:place])) == answer.text
        assert (told[place].ids, told[place].evidence) == (answer.ids, answer.evidence)
        assert 0 < told[place].timing.first_token_s <= told[place].timing.total_s
        told = told[place + 1 :]
    assert not told
    left = session.ask_together_stream(questions, TWELVE)
    next(left)
    left.close()
    assert digest(session) == before
    assert session._memory.use().held == session._memory.use().staged == 0


@pytest.mark.parametrize(("room", "sizes"), [(40, [2, 1]), (20, [1, 1, 1]), (60, [3])])
def test_as_many_answers_are_written_side_by_side_as_a_full_memory_has_room_for(
    room: int, sizes: list[int], tiny_language: LanguageModel, frames: Tensor, side_by_side: list[int]
) -> None:
    budget = (13 + 4 * 12 + room) * tiny_language.network.layout().bytes_per_slot
    session = DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=room)
    show(session, frames, [2] * 6)
    questions = [QUESTION, "w82 w83", "w90"]
    alone = [session.ask(question, TWELVE) for question in questions]
    side_by_side.clear()
    together = session.ask_together(questions, TWELVE)
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    assert side_by_side == [size for size in sizes for _ in range(12)]
