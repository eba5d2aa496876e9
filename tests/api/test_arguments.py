"""Arguments of another type than expected are one sentence, not an error from deep below."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtake
from longtake.api.arguments import _require_type
from longtake.api.models import require_same_device
from longtake.errors import LongtakeError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"source": None}, "Expected source as a text or a path or Iterable, but got None"),
        ({"source": 5}, "Expected source as a text or a path or Iterable, but got 5"),
        ({"windows": (64, 16)}, r"Expected windows as a text, but got \(64, 16\)"),
        ({"fps": "2"}, "Expected fps as a number, but got '2'"),
        ({"stride": 1.5}, "Expected stride as a whole number, but got 1.5"),
        ({"stride": True}, "Expected stride as a whole number, but got True"),
        ({"overwrite": "yes"}, "Expected overwrite as True or False, but got 'yes'"),
    ],
)
def test_map_refuses_values_of_another_type(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        longtake.map(**{"source": "world:9?frames=3", **keywords})


def test_sessions_refuse_values_of_another_type(tiny_model: GeometryModel) -> None:
    with pytest.raises(SettingError, match="Expected model as a text or a path or GeometryModel, but got None"):
        longtake.GeometrySession.from_pretrained(None)
    with pytest.raises(SettingError, match="Expected keyframes as a text, but got 6"):
        longtake.GeometrySession.from_pretrained(tiny_model, keyframes=6)


def test_numbers_of_other_libraries_are_numbers() -> None:
    _require_type("stride", np.int64(2), int)
    _require_type("fps", 9, float | None)
    _require_type("fps", np.float32(9), float | None)
    with pytest.raises(SettingError, match="Expected fps as a number, but got True"):
        _require_type("fps", True, float | None)


def test_a_frame_that_a_take_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    take = longtake.map("world:9?frames=4&size=56x42", out=tmp_path / "out", stride=2)
    with pytest.raises(LongtakeError, match=r"Expected a frame from 0 to 1 of the take .*, but got 99"):
        take.depth(99)


def test_a_picture_of_pillow_brings_no_warning(tiny_model: GeometryModel) -> None:
    from PIL import Image

    session = longtake.GeometrySession.from_pretrained(tiny_model)
    session.step(np.asarray(Image.new("RGB", (56, 42))))  # an array that cannot be written


def test_an_unknown_keyword_suggests_the_nearest() -> None:
    with pytest.raises(SettingError, match="map has no keyword 'modle'; perhaps you mean 'model'; choose one of"):
        longtake.map("world:9?frames=3", modle="tiny")
    with pytest.raises(SettingError, match="map has no keyword 'zzz'; choose one of source, out, model"):
        longtake.map("world:9?frames=3", zzz=1)


def test_a_device_that_a_loaded_model_is_not_on_is_refused(tiny_model: GeometryModel) -> None:
    with pytest.raises(SettingError, match="There is no device 'banana'; choose one of cpu, cuda, auto"):
        longtake.GeometrySession.from_pretrained(tiny_model, device="banana")
    longtake.GeometrySession.from_pretrained(tiny_model, device="cpu").close()
    with pytest.raises(SettingError, match="The model was loaded on cuda, but got device 'cpu'; leave it out, or"):
        require_same_device("cpu", "cuda")


def test_pixels_of_another_type_are_called_as_the_caller_does(tiny_model: GeometryModel) -> None:
    with (
        longtake.GeometrySession.from_pretrained(tiny_model) as session,
        pytest.raises(LongtakeError, match="bytes or floats, but got int64; convert them"),
    ):
        session.step(np.zeros((42, 56, 3), np.int64))


def test_a_saved_session_that_is_not_there_is_said_to_be_missing(tiny_model: GeometryModel, tmp_path: Path) -> None:
    with pytest.raises(LongtakeError, match=r"There is no saved session at .*gone\.safetensors; check the path\."):
        longtake.GeometrySession.resume(tmp_path / "gone.safetensors", tiny_model)


@pytest.mark.parametrize(
    "call",
    [
        longtake.open_take,
        longtake.load_model,
        longtake.load_language_model,
        longtake.map,
        longtake.GeometrySession.from_pretrained,
        longtake.DialogueSession.from_pretrained,
        longtake.LiveSession.resume,
    ],
)
@pytest.mark.parametrize(("given", "said"), [(None, "None"), ("", "an empty text"), (3, "3")])
def test_what_names_no_folder_and_no_model_is_one_sentence(call: Callable[..., object], given: Any, said: str) -> None:
    """An empty text would be the current folder."""
    with pytest.raises(SettingError, match=rf"^Expected \w+ as a (text or a path|path or a text).*, but got {said}\.$"):
        call(given)


def test_a_question_that_is_no_text_is_one_sentence(language: LanguageModel, tmp_path: Path) -> None:
    chat = longtake.DialogueSession.from_pretrained(language, memory="10MB")
    for ask in (chat.ask, chat.ask_stream):
        with pytest.raises(SettingError, match="Expected question as a text, but got None"):
            ask(None)  # type: ignore[operator]
    with pytest.raises(SettingError, match="Expected choices as a list, but got None"):
        chat.ask_choice("where", None)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"^Expected path as a .*, but got an empty text\.$"):
        chat.save("")


def test_a_version_of_a_bundled_model_is_refused_with_its_reason() -> None:
    with pytest.raises(LongtakeError, match=r"micro-map comes with longtake, in one version; leave out '@abc'\.$"):
        longtake.load_model("micro-map@abc")


@pytest.mark.parametrize("words", ["size=0x0", "size=99999x99999", "fps=0", "frames=0"])
def test_a_world_that_cannot_be_drawn_is_one_sentence(words: str) -> None:
    with pytest.raises(LongtakeError, match=r"^Expected [^\n]*, but got [^\n]*\.$"):
        longtake.open_video(f"world:9?{words}")
