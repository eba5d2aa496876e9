from pathlib import Path

import pytest

from longtake.hub.presets import PRESETS, Named, alone_in, parse_name
from longtake.weights.presets import BY_NAME


def test_presets_have_names_of_their_own_and_say_what_is_known_of_their_licence() -> None:
    names = [preset.name for preset in PRESETS]
    assert names == ["lingbot-map-long", "lingbot-map", "stream3r", "streamvggt", "vggt"]
    for preset in PRESETS:
        assert preset.num_bytes == 4 * preset.num_parameters
        told = "no tag seen; check" if preset.repo == "robbyant/lingbot-map" else "non-commercial"
        assert told in preset.licence
    assert {preset.model for preset in PRESETS} == {None, *BY_NAME}


@pytest.mark.parametrize(
    ("text", "weights", "model"),
    [
        ("streamvggt:x/y.pth", "x/y.pth", "streamvggt"),
        ("vggt:facebook/VGGT-1B/model.pt", "facebook/VGGT-1B/model.pt", "vggt"),
        ("vggt:a:b.pt", "a:b.pt", "vggt"),
        ("vggt", "vggt", "vggt"),
        ("facebook/VGGT-1B", "facebook/VGGT-1B", "vggt"),
        ("facebook/VGGT-1B/model.pt", "facebook/VGGT-1B/model.pt", "vggt"),
        ("facebook/VGGT-1B-Commercial", "facebook/VGGT-1B-Commercial", None),
        ("lch01/StreamVGGT", "lch01/StreamVGGT", "streamvggt"),
        ("yslan/STream3R", "yslan/STream3R", "stream3r"),
        ("lingbot-map", "lingbot-map", None),
        ("other:x.pt", "other:x.pt", None),
        ("vggt:", "vggt:", None),
        ("x.pt", "x.pt", None),
    ],
)
def test_name_tells_the_model_where_it_can(text: str, weights: str, model: str | None) -> None:
    assert parse_name(text) == Named(weights, model)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("stream3r@1a2b", Named("stream3r", "stream3r", "1a2b")),
        ("lch01/StreamVGGT@refs/pr/1", Named("lch01/StreamVGGT", "streamvggt", "refs/pr/1")),
        ("vggt:org/repo/x.pt@v1.0", Named("org/repo/x.pt", "vggt", "v1.0")),
        ("org/repo@-x", Named("org/repo@-x")),
    ],
)
def test_name_may_end_in_a_commit(text: str, named: Named) -> None:
    assert parse_name(text) == named


def test_file_of_that_very_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("vggt", "vggt:x.pt", "x@1.pt"):
        Path(name).touch()
        assert parse_name(name) == Named(name)
        assert parse_name(Path(name)) == Named(Path(name))


def test_repository_of_one_preset_stands_for_it() -> None:
    preset = alone_in("lch01/StreamVGGT")
    assert preset is not None
    assert preset.file == "checkpoints.pth"
    assert alone_in("robbyant/lingbot-map") is None
    assert alone_in("org/repo") is None
