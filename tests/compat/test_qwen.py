"""The published streaming code's names: golden streams through them, nothing left behind, and what is refused."""

import gc
import inspect
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from longtake.compat.qwen import KVCacheManager, StreamQwenModel, VideoStreamingInference
from longtake.errors import CheckpointError, InputError, LongtakeError, SettingError
from longtake.language.frames import PictureFormat, pixel_rows
from longtake.runtime import execution, recorded_reading

GOLDEN = Path(__file__).parent.parent / "golden" / "vlm"
INDEX = json.loads((GOLDEN / "index.json").read_text())
CASE = INDEX["cases"]["stream_3chunks_mixed_fps"]
SYSTEM, SAID, QUESTION = "w20 w21 w22 w23", "w30 w31", "w100 w101"
MEMORY = "4MB"
EMPTY = inspect.Parameter.empty
ASKED = {
    "question": EMPTY,
    "max_new_tokens": 256,
    "min_new_tokens": 1,
    "update_state": False,
    "do_sample": False,
    "temperature": 0.7,
    "top_p": 0.9,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "StreamQwenModel.forward": {
        "input_ids": EMPTY,
        **dict.fromkeys(
            [
                "attention_mask",
                "position_ids",
                "past_key_values",
                "inputs_embeds",
                "labels",
                "use_cache",
                "output_attentions",
                "output_hidden_states",
                "return_dict",
                "pixel_values",
                "pixel_values_videos",
                "image_grid_thw",
                "video_grid_thw",
                "second_per_grid_ts",
                "rope_deltas",
                "cache_position",
            ]
        ),
    },
    "StreamQwenModel.reset_stream_state": {},
    "KVCacheManager.snapshot": {"model": None},
    "KVCacheManager.restore": {"model": None},
    "KVCacheManager.discard_snapshot": {},
    "KVCacheManager.clear": {},
    "KVCacheManager.get_seq_length": {},
    "KVCacheManager.build_full_attention_mask": {"new_mask": EMPTY, "cache_override": None},
    "VideoStreamingInference.append_frame": {"image": EMPTY, "text_content": "", "as_video": False, "fps": None},
    "VideoStreamingInference.append_video_chunk": {"frames": EMPTY, "fps": 2.0, "text_content": ""},
    "VideoStreamingInference.ask": ASKED,
    "VideoStreamingInference.ask_stream": ASKED,
    "VideoStreamingInference.ask_choice": {"question": EMPTY, "choices": EMPTY},
    "VideoStreamingInference.get_cache_info": {},
    "VideoStreamingInference.reset": {},
}


def word_tokenizer() -> tokenizers.Tokenizer:
    """A word `w80` for every id that is not special."""
    ids = json.loads((GOLDEN / "tokens.json").read_text())["ids"]
    special = {f"<|{name}|>": token for name, token in ids.items() if token < ids["nl"]}
    named = {"\n": ids["nl"]} | {role: ids[role] for role in ("system", "user", "assistant")}
    taken = {*special.values(), *named.values()}
    words = {f"w{token}": token for token in range(256) if token not in taken}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(special | named | words, unk_token="<|pad|>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "removed")
    tokenizer.add_special_tokens(list(special))
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model as a folder of the hub, whose frames are taken as they are."""
    place = tmp_path_factory.mktemp("qwen")
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(GOLDEN / name, place / name)
    word_tokenizer().save(str(place / "tokenizer.json"))
    limits = {"min_pixels": 3136, "max_pixels": 12_845_056}
    (place / "preprocessor_config.json").write_text(json.dumps(limits))
    return place


@pytest.fixture
def model(folder: Path) -> StreamQwenModel:
    loaded = StreamQwenModel.from_pretrained(folder, memory=MEMORY)
    silent = replace(loaded.language, suppressed_ids=tuple(INDEX["greedy_suppressed_ids"]))
    return StreamQwenModel(silent, memory=MEMORY)


@pytest.fixture
def engine(model: StreamQwenModel, folder: Path) -> VideoStreamingInference:
    return VideoStreamingInference(model, folder, "cpu", system_prompt=SYSTEM)


@pytest.fixture(scope="module")
def chunks() -> list[list[np.ndarray]]:
    """Frames of each chunk, height x width x 3."""
    found = []
    for number, count in enumerate(CASE["chunk_frames"]):
        with Image.open(GOLDEN / "cases" / f"stream_3chunks_mixed_fps.frames_u8_{number}.png") as picture:
            found.append(list(np.array(picture).reshape(count, 84, 112, 3)))
    return found


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN / "cases" / "stream_3chunks_mixed_fps.safetensors")


def append(engine: VideoStreamingInference, chunks: list[list[np.ndarray]], *numbers: int) -> None:
    for number in numbers:
        engine.append_video_chunk(chunks[number], CASE["fps"][number], SAID)


def answer(engine: VideoStreamingInference, **more: Any) -> list[int]:
    text, _ = engine.ask(QUESTION, 12, **more)
    return list(engine.model.language.required_tokenizer.encode(text))


def chunk_inputs(golden: dict[str, Tensor], chunks: list[list[np.ndarray]], number: int) -> dict[str, Any]:
    """What a processor would make of a chunk."""
    start = sum(CASE["chunk_lengths"][:number])
    frames = torch.from_numpy(np.stack(chunks[number])).permute(0, 3, 1, 2)
    return {
        "input_ids": golden["input_ids"][None, start : start + CASE["chunk_lengths"][number]].long(),
        "pixel_values_videos": pixel_rows(frames, PictureFormat().fit(84, 112)).values,
        "video_grid_thw": golden["video_grid_thw"][number : number + 1].long(),
        "second_per_grid_ts": torch.tensor([CASE["second_per_grid_ts"][number]]),
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_signatures_are_kept(name: str) -> None:
    owner, method = name.split(".")
    owners = {kind.__name__: kind for kind in (StreamQwenModel, KVCacheManager, VideoStreamingInference)}
    parameters = inspect.signature(vars(owners[owner])[method]).parameters
    found = {key: parameter.default for key, parameter in parameters.items() if key != "self"}
    assert dict(list(found.items())[: len(PUBLISHED[name])]) == PUBLISHED[name]
    assert [*found][: len(PUBLISHED[name])] == [*PUBLISHED[name]]


def test_greedy_answers_after_each_chunk_are_the_golden_ones(
    engine: VideoStreamingInference, chunks: list[list[np.ndarray]]
) -> None:
    for number in range(3):
        append(engine, chunks, number)
        assert answer(engine) == CASE["greedy"][f"after_chunk_{number}"]["tokens"]
        state = engine.get_cache_info()["stream_state"]
        assert state["last_cache_position"] == CASE["next_position_after_chunk"][number] - 1
        assert engine.model.stream_state["last_cache_position"] == state["last_cache_position"]


def test_forward_equals_one_forward_over_all(
    model: StreamQwenModel, golden: dict[str, Tensor], chunks: list[list[np.ndarray]]
) -> None:
    """First prefill, chunk prefill, and the question's tokens one by one."""
    cache, said = None, []
    for number, after in enumerate(CASE["next_position_after_chunk"]):
        output = model(**chunk_inputs(golden, chunks, number), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        said.append(output.logits[0])
        length = sum(CASE["chunk_lengths"][: number + 1])
        assert model.stream_state == {"last_cache_position": after - 1, "rope_deltas": torch.tensor([[after - length]])}
        assert output.rope_deltas.tolist() == [[after - length]]
    said += [model(torch.tensor([[token]]), past_key_values=cache).logits[0] for token in CASE["question_ids"]]
    assert model.stream_state["last_cache_position"] == CASE["next_position_after_question"] - 1
    assert (torch.cat(said)[:, ::4] - golden["logits_offline"]).abs().max() < 1e-4


def test_only_the_last_logits_are_made_if_so_asked(
    model: StreamQwenModel, golden: dict[str, Tensor], chunks: list[list[np.ndarray]]
) -> None:
    inputs = chunk_inputs(golden, chunks, 0)
    last = model(**inputs, logits_to_keep=2).logits
    assert last.shape == (1, 2, 256)
    torch.testing.assert_close(last, model(**inputs).logits[:, -2:], atol=1e-5, rtol=0.0)


def test_stills_take_their_places_as_pictures(
    engine: VideoStreamingInference, model: StreamQwenModel, chunks: list[list[np.ndarray]]
) -> None:
    """An appended frame is what forward makes of the same picture and its tokens."""
    engine.append_frame(Image.fromarray(chunks[0][0]), SAID)
    frame = torch.from_numpy(chunks[0][0]).movedim(-1, 0)[None]
    rows = pixel_rows(frame, PictureFormat().fit(84, 112), pad=True)
    ids = [2, 9, 8, 20, 21, 22, 23, 3, 8, 2, 10, 8, 4, *[6] * 12, 5, 30, 31, 3, 8]
    output = model(torch.tensor([ids]), pixel_values=rows.values, image_grid_thw=torch.tensor([rows.grid]))
    assert output.past_key_values.next_position == 13 + 4 + 5
    assert engine.get_cache_info()["cache_seq_length"] == len(ids)
    cache = engine.cache_manager.cache
    assert cache is not None
    probes = [model(torch.tensor([[100]]), past_key_values=one).logits for one in (output.past_key_values, cache)]
    assert torch.equal(*probes)


def test_remembered_question_is_the_golden_one(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    want = CASE["ask_after_chunk1_update_state_True"]
    append(engine, chunks, 0, 1)
    assert answer(engine, update_state=True) == want["answers"][0]
    append(engine, chunks, 2)
    info = engine.get_cache_info()
    assert info["cache_seq_length"] == want["cache_len_before_last_ask"]
    assert info["stream_state"]["last_cache_position"] == want["next_position_before_last_ask"] - 1
    assert answer(engine) == want["answers"][1]


def test_questions_and_choices_leave_the_stream_as_it_was(
    engine: VideoStreamingInference, chunks: list[list[np.ndarray]]
) -> None:
    append(engine, chunks, 0, 1, 2)
    before = engine.get_cache_info()
    choices = [" ".join(f"w{token}" for token in choice["tokens"]) for choice in CASE["choices"]]
    assert engine.ask_choice(QUESTION, choices) == choices[CASE["best_by_mean"]]
    stream = engine.ask_stream(QUESTION, 12)
    assert next(stream)["ttft"] > 0
    stream.close()
    assert engine.get_cache_info() == before
    assert answer(engine) == CASE["greedy"]["after_chunk_2"]["tokens"]


def test_streamed_answer_is_the_whole_one(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    append(engine, chunks, 0)
    *tokens, final = engine.ask_stream(QUESTION, 12)
    text, metrics = engine.ask(QUESTION, 12)
    assert "".join(token["delta"] for token in tokens) == tokens[-1]["text"] == final["text"] == text
    assert [token["ttft"] is None for token in tokens] == [False] + [True] * (len(tokens) - 1)
    assert metrics.keys() == final["metrics"].keys()
    assert metrics["tokens"] == 12
    assert metrics["seen_until"] == 0.75
    assert 0 < metrics["fork"] < metrics["ttft"] < metrics["total_latency"]
    assert metrics["ttft"] == pytest.approx(metrics["fork"] + metrics["prefill"])


def test_snapshots_nest_and_are_put_back(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    append(engine, chunks, 0, 1)
    manager, before = engine.cache_manager, engine.get_cache_info()
    manager.restore(engine.model)  # without a snapshot: nothing
    manager.snapshot(engine.model)
    append(engine, chunks, 2)
    manager.snapshot(engine.model)
    engine.ask(QUESTION, 3, update_state=True)
    manager.restore(engine.model)
    assert engine.model.stream_state["last_cache_position"] == 44
    manager.restore(engine.model)
    manager.restore(engine.model)
    assert engine.get_cache_info() == before
    append(engine, chunks, 2)
    assert answer(engine) == CASE["greedy"]["after_chunk_2"]["tokens"]


def test_discarded_snapshot_keeps_what_came(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    append(engine, chunks, 0)
    manager = engine.cache_manager
    manager.snapshot()
    manager.snapshot()
    append(engine, chunks, 1)
    manager.discard_snapshot()
    append(engine, chunks, 2)
    manager.discard_snapshot()
    manager.restore()
    assert engine.get_cache_info()["cache_seq_length"] == sum(CASE["chunk_lengths"])
    assert answer(engine) == CASE["greedy"]["after_chunk_2"]["tokens"]


def test_snapshot_of_nothing_goes_back_to_nothing(
    engine: VideoStreamingInference, chunks: list[list[np.ndarray]]
) -> None:
    engine.cache_manager.snapshot(engine.model)
    append(engine, chunks, 0)
    engine.cache_manager.restore(engine.model)
    assert engine.cache_manager.cache is None
    assert engine.model.stream_state == {"last_cache_position": -1, "rope_deltas": None}


def test_clone_goes_its_own_way_and_gives_its_slots_back(
    model: StreamQwenModel, golden: dict[str, Tensor], chunks: list[list[np.ndarray]]
) -> None:
    cache = model(**chunk_inputs(golden, chunks, 0)).past_key_values
    used = cache.info.num_tokens
    twin = KVCacheManager.clone(cache)
    assert twin is not None
    model(**chunk_inputs(golden, chunks, 1), past_key_values=twin)
    assert (cache.get_seq_length(), twin.get_seq_length()) == (42, 85)
    assert (cache.next_position, twin.next_position) == (22, 34)
    model.reset_stream_state()
    del twin
    gc.collect()
    assert cache.info.num_tokens == used
    assert KVCacheManager.clone(None) is None


def test_manager_without_a_cache() -> None:
    manager = KVCacheManager()
    mask = torch.ones(1, 3, dtype=torch.int64)
    assert manager.get_seq_length() == 0
    assert torch.equal(manager.build_full_attention_mask(mask), mask)
    manager.restore()
    manager.discard_snapshot()
    manager.clear()
    assert manager.cache is None


def test_full_mask_covers_the_past(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    append(engine, chunks, 0)
    mask = engine.cache_manager.build_full_attention_mask(torch.tensor([[1, 0]]))
    assert mask.tolist() == [[1] * 43 + [0]]
    assert mask.dtype == torch.int64


def test_state_is_of_the_cache_read_last_and_can_be_set(
    model: StreamQwenModel, golden: dict[str, Tensor], chunks: list[list[np.ndarray]]
) -> None:
    one = model(**chunk_inputs(golden, chunks, 0)).past_key_values
    state = model.stream_state
    other = model(**chunk_inputs(golden, chunks, 1)).past_key_values
    assert model.stream_state["last_cache_position"] == 11
    model(torch.tensor([[100]]), past_key_values=one)
    assert model.stream_state["last_cache_position"] == 22
    model.stream_state = state
    assert (one.next_position, other.next_position) == (22, 12)
    model.stream_state = {"last_cache_position": -1, "rope_deltas": None}
    assert model.stream_state["rope_deltas"] is None


def test_two_engines_share_a_model(
    model: StreamQwenModel, engine: VideoStreamingInference, chunks: list[list[np.ndarray]]
) -> None:
    other = VideoStreamingInference(model, system_prompt=SYSTEM)
    for number in (0, 1):
        append(engine, chunks, number)
        append(other, chunks, number)
    assert answer(engine) == answer(other) == CASE["greedy"]["after_chunk_1"]["tokens"]


def test_cache_info(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    assert engine.get_cache_info()["cache_seq_length"] == 0
    append(engine, chunks, 0, 1)
    assert engine.get_cache_info() == {
        "chunks_encoded": 2,
        "total_frames": 10,
        "cache_seq_length": 85,
        "cache_memory_gb": 85 * 4 * 2 * 2 * 16 * 4 / 1024**3,
        "stream_state": {"last_cache_position": 33, "rope_deltas": [[34 - 85]]},
        "live_chunks": 2,
        "evicted_chunks": 0,
        "time_span": (0.0, 0.75 + 6 / 2),
    }
    engine.reset()
    info = engine.get_cache_info()
    assert (info["chunks_encoded"], info["total_frames"], info["cache_seq_length"]) == (0, 0, 0)
    append(engine, chunks, 0)
    assert answer(engine) == CASE["greedy"]["after_chunk_0"]["tokens"]


def test_odd_chunk_shows_its_last_frame_twice(
    engine: VideoStreamingInference, model: StreamQwenModel, chunks: list[list[np.ndarray]]
) -> None:
    padded = VideoStreamingInference(model, system_prompt=SYSTEM)
    padded.append_video_chunk([*chunks[1][:3], chunks[1][2]], 2.0)
    assert engine.append_video_chunk(chunks[1][:3], 2.0) == "Chunk 0 encoded (3 frame(s), cache_len=40)"
    assert answer(engine) == answer(padded)


def test_timestamps_decide_where_they_are_given(
    engine: VideoStreamingInference, chunks: list[list[np.ndarray]]
) -> None:
    engine.append_video_chunk(chunks[0], 30.0, SAID, timestamps=[5.0, 5.25, 5.5, 5.75])
    engine.append_video_chunk(chunks[1], 30.0, timestamps=[6.0 + number / 2 for number in range(6)])
    assert answer(engine) == CASE["greedy"]["after_chunk_1"]["tokens"]
    engine.append_frame(chunks[2], as_video=True, fps=1.0)
    assert answer(engine) == CASE["greedy"]["after_chunk_2"]["tokens"]


def test_oldest_chunks_leave_when_the_memory_is_full(folder: Path, chunks: list[list[np.ndarray]]) -> None:
    model = StreamQwenModel.from_pretrained(folder, memory="1250KB")
    engine = VideoStreamingInference(model, folder, system_prompt=SYSTEM)
    for _ in range(12):
        engine.append_video_chunk(chunks[0])
    info = engine.get_cache_info()
    assert info["chunks_encoded"] == 12
    assert 0 < info["live_chunks"] == 12 - info["evicted_chunks"] < 12
    assert info["cache_seq_length"] == 9 + info["live_chunks"] * (24 + 7)
    assert info["time_span"][0] == 2.0 * info["evicted_chunks"]
    assert engine.ask(QUESTION, 4)[1]["tokens"] <= 4


def test_chunks_that_left_come_back_with_a_snapshot(folder: Path, chunks: list[list[np.ndarray]]) -> None:
    engine = VideoStreamingInference(StreamQwenModel.from_pretrained(folder, memory="1250KB"), system_prompt=SYSTEM)
    for _ in range(3):
        engine.append_video_chunk(chunks[0])
    before, said = engine.get_cache_info(), answer(engine)
    engine.cache_manager.snapshot()
    for _ in range(12):
        engine.append_video_chunk(chunks[0])
    assert engine.get_cache_info()["evicted_chunks"] > 3
    engine.cache_manager.restore()
    assert engine.get_cache_info() == before
    assert answer(engine) == said


def test_model_is_loaded_in_the_type_and_place_asked_for(folder: Path) -> None:
    half = StreamQwenModel.from_pretrained(
        folder, torch_dtype=torch.bfloat16, device_map="cpu", attn_implementation="sdpa"
    )
    assert half.language.model.dtype == torch.bfloat16
    assert half.eval().to("cpu").device == torch.device("cpu")
    assert half.config.model_type == "qwen2_5_vl"


class Processor:
    """As one of transformers: holds a tokenizer."""

    tokenizer = word_tokenizer()


@pytest.mark.parametrize("give", [lambda _: Processor(), lambda _: word_tokenizer(), str, lambda path: path])
def test_processor_may_be_many_things(
    give: Callable[[Path], Any], model: StreamQwenModel, folder: Path, chunks: list[list[np.ndarray]]
) -> None:
    wordless = StreamQwenModel(replace(model.language, tokenizer=None, special=None), memory=MEMORY)
    engine = VideoStreamingInference(wordless, give(folder), system_prompt=SYSTEM)
    append(engine, chunks, 0)
    text, _ = engine.ask(QUESTION, 12)
    assert text == " ".join(f"w{token}" for token in CASE["greedy"]["after_chunk_0"]["tokens"])


def test_question_without_video_is_about_words_alone(engine: VideoStreamingInference) -> None:
    _, metrics = engine.ask(QUESTION, 3)
    assert metrics["seen_until"] is None
    assert engine.get_cache_info()["cache_seq_length"] == 0


def test_published_script_with_its_own_loop(
    engine: VideoStreamingInference, chunks: list[list[np.ndarray]], golden: dict[str, Tensor]
) -> None:
    """Snapshot, a prompt and words through the model, restore: as scripts did before there was `ask`."""
    append(engine, chunks, 0, 1, 2)
    manager, model = engine.cache_manager, engine.model
    before = engine.get_cache_info()
    manager.snapshot(model)
    ids = torch.tensor([CASE["question_ids"]])
    mask = manager.build_full_attention_mask(torch.ones_like(ids))
    output = model(ids, attention_mask=mask, past_key_values=manager.cache, use_cache=True, logits_to_keep=1)
    manager.cache = manager.detach(output.past_key_values)
    assert (output.logits[0, -1] - golden["first_answer_logits_last_ask_update_False"]).abs().max() < 1e-4
    manager.restore(model)
    assert engine.get_cache_info() == before
    assert model.stream_state["last_cache_position"] == 44


def test_drawn_answers_take_other_words(engine: VideoStreamingInference, chunks: list[list[np.ndarray]]) -> None:
    append(engine, chunks, 0)
    drawn = {tuple(answer(engine, do_sample=True, temperature=3.0, top_p=1.0)) for _ in range(3)}
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda engine, chunks: engine.append_frame(chunks[0]), "as_video=True"),
        (lambda engine, chunks: engine.append_video_chunk([]), "one frame at least"),
        (lambda engine, chunks: engine.append_video_chunk(chunks[0], 0.0), "more than 0 frames"),
        (lambda engine, chunks: engine.append_video_chunk(chunks[0], timestamps=[9.0]), "a time for each"),
        (lambda engine, chunks: engine.append_video_chunk(chunks[0], timestamps=[9.0, 8.0, 7.0, 6.0]), "must rise"),
        (lambda engine, chunks: engine.append_frame(chunks[0][0], timestamp=0.1), "must rise"),
        (lambda engine, chunks: engine.append_frame(chunks[0][0][:56]), "84"),
        (lambda engine, chunks: engine.append_video_chunk([chunks[0][0], chunks[0][1][:56]]), "one size"),
        (lambda engine, chunks: engine.append_frame(chunks[0][0].astype(np.float32)), "float32"),
        (lambda engine, chunks: engine.append_frame(chunks[0][0][..., 0]), "height x width x 3"),
        (lambda engine, chunks: engine.ask(" "), "empty"),
        (lambda engine, chunks: engine.ask(QUESTION, 0), "max_new_tokens"),
        (lambda engine, chunks: engine.ask(QUESTION, min_new_tokens=5), "min_new_tokens"),
        (lambda engine, chunks: engine.ask_choice(QUESTION, ["w50"]), "two choices"),
        (lambda engine, chunks: setattr(engine.model, "stream_state", {}), "last_cache_position"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(
    spoil: Callable[[VideoStreamingInference, list[list[np.ndarray]]], Any],
    match: str,
    engine: VideoStreamingInference,
    chunks: list[list[np.ndarray]],
) -> None:
    append(engine, chunks, 0)
    before = engine.get_cache_info()
    with pytest.raises(LongtakeError, match=match):
        spoil(engine, chunks)
    assert engine.get_cache_info() == before
    assert answer(engine) == CASE["greedy"]["after_chunk_0"]["tokens"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"input_ids": torch.zeros(2, 3, dtype=torch.int64)}, "one conversation"),
        ({"attention_mask": torch.tensor([[1, 0]])}, "hides some"),
        ({"position_ids": torch.zeros(3, 1, 2)}, "position_ids"),
        ({"use_cache": False}, "use_cache"),
        ({"logits_to_keep": -1}, "logits_to_keep"),
        ({"video_grid_thw": None}, "together"),
        ({"video_grid_thw": torch.tensor([[2, 6, 6]])}, "patches"),
        ({"video_grid_thw": torch.tensor([[1, 12, 8]])}, None),
        ({"second_per_grid_ts": [0.5, 0.5]}, "each of 1 clips"),
        ({"input_ids": torch.tensor([[2, 7, 5]])}, "run of 1"),
    ],
)
def test_bad_prompts_are_refused(
    change: dict[str, Any],
    match: str | None,
    model: StreamQwenModel,
    golden: dict[str, Tensor],
    chunks: list[list[np.ndarray]],
) -> None:
    inputs = chunk_inputs(golden, chunks, 0)
    if match is None:  # as many patches in another shape make as many tokens
        assert model(**inputs | change).past_key_values.next_position != 22
        return
    with pytest.raises((InputError, SettingError), match=match):
        model(**inputs | change)
    assert model.stream_state["last_cache_position"] == -1


def test_bad_models_and_processors_are_refused(model: StreamQwenModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        StreamQwenModel.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="tokenizer"):
        VideoStreamingInference(model, tmp_path)
    with pytest.raises(InputError, match="int"):
        VideoStreamingInference(model, 3)
    with pytest.raises(SettingError, match="eviction_config"):
        VideoStreamingInference(model, None, "cpu", {"max_cache_tokens": 100})
    with pytest.raises(SettingError, match="in bytes"):
        StreamQwenModel(model.language, memory="8 frames")
    with pytest.raises(InputError, match="call the model first"):
        model.stream_state = {"last_cache_position": 4, "rope_deltas": None}
    with pytest.raises(InputError, match="StreamQwenModel returned"):
        KVCacheManager.clone([torch.zeros(1)])


def test_attention_is_by_the_fastest_backend_for_the_model_as_in_every_dialogue(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = StreamQwenModel.from_pretrained(folder, memory=MEMORY)
    half = StreamQwenModel.from_pretrained(folder, dtype=torch.float16, memory=MEMORY)
    assert backend_of(exact) == backend_of(half) == "sdpa"
    monkeypatch.setattr(execution, "why_unsuitable", as_on_a_gpu)
    assert (backend_of(exact), backend_of(half)) == ("sdpa", "triton")


@pytest.mark.extra
@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted where there is no GPU")
def test_streams_through_our_own_kernels_are_those_of_the_librarys_modules(
    folder: Path, chunks: list[list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("longtake.attention.tail_kernels", reason="needs Triton", exc_type=ImportError)
    monkeypatch.setattr(
        recorded_reading, "why_reading_unrecorded", lambda _: None
    )  # the interpreter takes what it is given
    model = StreamQwenModel.from_pretrained(folder, dtype=torch.float16, memory=MEMORY)
    told, logits = [], []
    for is_recorded in (False, True):
        if is_recorded:
            monkeypatch.setattr(execution, "why_unsuitable", as_on_a_gpu)
        engine = VideoStreamingInference(model, folder, system_prompt=SYSTEM)
        engine.append_video_chunk(chunks[0][:2], text_content=SAID)
        cache = engine.cache_manager.cache
        assert cache is not None
        assert (cache.session.why_portable is None) == is_recorded
        engine.cache_manager.snapshot(model)
        told.append(engine.ask(QUESTION, max_new_tokens=2)[0])
        engine.cache_manager.restore(model)
        logits.append(model(torch.tensor([[30, 31, 32]]), past_key_values=cache, logits_to_keep=1).logits)
    assert told[0] == told[1]
    torch.testing.assert_close(logits[1], logits[0], atol=0.05, rtol=0.01)


def as_on_a_gpu(_: torch.device, dtype: torch.dtype, *__: int) -> str | None:
    return None if dtype == torch.float16 else "not in this type"


def backend_of(model: StreamQwenModel) -> str:
    return model.new_cache().session._memory.setup.backend.name
