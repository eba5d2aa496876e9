"""The folder of micro-vqa: small, complete, and the same to plain transformers and to this package."""

from pathlib import Path

import pytest
import torch
import transformers

from longtake.errors import InputError
from longtake.language.frames import pixel_rows
from longtake.language.load import load_language
from longtake.language.qwen2_5_vl import clip_question, open_clip
from training.packing import Shape
from training.reading import Reading, patch_rows
from training.vocabulary import Vocabulary
from training.vqa_model import FRAME_SIZE, PICTURE_FORMAT, TINY_VQA, build_vqa, save_vqa


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("hub") / "micro-vqa"
    save_vqa(build_vqa(), path)
    return path


def test_it_is_small_enough_to_come_with_the_package(folder: Path) -> None:
    assert sum(weight.numel() for weight in build_vqa().parameters()) <= 5_000_000
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 10_000_000


def test_the_folder_is_read_by_plain_transformers(folder: Path) -> None:
    model, report = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.dtype is torch.float16
    assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = [{"type": "video"}, {"type": "text", "text": "Have you seen a red box?"}]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    words = Vocabulary()
    special = words.special_ids
    asked = clip_question(special, words.encode("have you seen a red box ?"))
    assert prompt["input_ids"] == [*open_clip(special, words.system), special.video_pad, *asked]


def test_the_folder_is_read_by_this_package(folder: Path) -> None:
    language = load_language(folder)
    assert language.special_ids == Vocabulary().special_ids
    assert language.eos_ids == (Vocabulary().id_of("<|im_end|>"),)
    assert language.picture_format == PICTURE_FORMAT
    assert language.text.mrope_section == (4, 6, 6)
    assert (language.text.rope_theta, language.text.tokens_per_second) == (10_000, 2)
    assert language.text.max_positions == 32_768


def test_weights_are_written_in_half_and_the_model_stays_as_it_is(tmp_path: Path) -> None:
    model = build_vqa(TINY_VQA)
    save_vqa(model, tmp_path)
    read = load_language(tmp_path).model
    for name, weight in model.state_dict().items():
        assert weight.dtype is torch.float32
        assert torch.equal(read.state_dict()[name], weight.half().float())


@pytest.mark.parametrize("size", [(112, 168), (224, 336), (213, 320), (480, 720), (56, 84), (98, 126)])
def test_frames_of_about_three_to_two_get_the_size_that_was_learned(size: tuple[int, int]) -> None:
    resized = PICTURE_FORMAT.fit(*size).resized
    assert (resized.height, resized.width) == FRAME_SIZE


def test_the_vision_tower_sees_all_grids_at_once_as_it_sees_them_one_by_one(folder: Path) -> None:
    model = load_language(folder).model
    frames = (torch.rand(6, 3, 112, 168, generator=torch.Generator().manual_seed(2)) * 255).to(torch.uint8)
    rows = pixel_rows(frames, PICTURE_FORMAT.fit(112, 168))
    pairs = frames.unflatten(0, (3, 2)).float() / 255
    shape = Shape(num_frames=6, num_held=0, question_tokens=20, rows=4, columns=6, num_opening=1)
    reading = Reading(model, shape, PICTURE_FORMAT)
    mean, std = (torch.tensor(values)[:, None, None] for values in (PICTURE_FORMAT.mean, PICTURE_FORMAT.std))
    torch.testing.assert_close(patch_rows((pairs - mean) / std, PICTURE_FORMAT).flatten(0, 1), rows.values)
    with torch.no_grad():
        want = torch.cat(list(model.model.get_video_features(rows.values, torch.tensor([rows.grid])).pooler_output))
        got = reading.look(pairs).flatten(0, 1)
    assert want.std() > 1e-3
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save_vqa(build_vqa(TINY_VQA), tmp_path / "file" / "model")
