"""STream3R's model and stream through longtake: golden runs, published signatures, and what is refused."""

import inspect
import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from longtake.compat import stream3r_memory
from longtake.compat.stream3r import STream3R, StreamSession, load_and_preprocess_images
from longtake.errors import BudgetError, CheckpointError, InputError, LongtakeError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.weights.load import save_geometry

GOLDEN = Path(__file__).parent.parent / "golden" / "stream3r"
TOKENS, LAYERS = 25, 4
DENSE = ("depth", "depth_conf", "world_points", "world_points_conf")
SHAPES = {
    "pose_enc": (9,),
    "depth": (56, 70, 1),
    "depth_conf": (56, 70),
    "world_points": (56, 70, 3),
    "world_points_conf": (56, 70),
    "images": (3, 56, 70),
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "STream3R.__init__": {"img_size": 518, "patch_size": 14, "embed_dim": 1024, "freeze": "none"},
    "STream3R.set_freeze": {"freeze": inspect.Parameter.empty},
    "STream3R.forward": {
        "images": inspect.Parameter.empty,
        "mode": "causal",
        "aggregator_kv_cache_list": None,
        "camera_head_kv_cache_list": None,
    },
    "StreamSession.__init__": {
        "model": inspect.Parameter.empty,
        "mode": "causal",
        "num_frames": None,
        "use_kv_compression": False,
        "eviction_ratio": 0.3,
        "importance_aggregation": "sum",
        "use_layerwise_eviction": False,
        "budget_ratio": 0.5,
        "temp": 0.5,
    },
    "StreamSession.forward_stream": {"images": inspect.Parameter.empty},
    "StreamSession.get_all_predictions": {},
    "StreamSession.get_last_prediction": {},
    "StreamSession.clear": {},
}


@pytest.fixture(scope="module")
def model(vggt_config: Mapping[str, GeometryConfig], vggt_weights: Callable[[str], dict[str, Tensor]]) -> STream3R:
    """The golden network behind the published constructor."""
    built = STream3R(img_size=56, embed_dim=32, sizes=vggt_config["stream3r"])
    assert built.load_state_dict(vggt_weights("stream3r")) == ([], [])
    return built.eval()


@pytest.fixture(scope="module")
def frames(vggt_frames: Tensor) -> Tensor:
    return vggt_frames[0]


def check(want: Any, results: Mapping[str, Tensor]) -> None:
    """Every prediction that the golden file holds; sequences of a batch lie there one after another."""
    checked = [name for name in ("pose_enc", *DENSE) if name in want.tensors]
    assert len(checked) >= 3
    for name in checked:
        value = results[name].squeeze(-1) if name == "depth" else results[name]
        want.check(name, value.flatten(0, 1))


@pytest.mark.parametrize("mode", ["causal", "window", "full"])
def test_clip_reproduces_the_golden_run(
    mode: str, model: STream3R, frames: Tensor, vggt_golden: Callable[[str], Any]
) -> None:
    with torch.no_grad():
        results = model(frames, mode=mode)
    check(vggt_golden(f"batch_{mode}"), results)
    assert {name: tuple(value.shape) for name, value in results.items()} == {
        name: (1, 8, *shape) for name, shape in SHAPES.items()
    }
    assert torch.equal(results["images"][0], frames)


@pytest.mark.parametrize("mode", ["causal", "window"])
def test_stream_reproduces_the_golden_run_and_its_cache(
    mode: str, model: STream3R, frames: Tensor, vggt_golden: Callable[[str], Any]
) -> None:
    want, session = vggt_golden(f"stream_{mode}"), StreamSession(model, mode=mode)
    for index in range(8):
        results = session.forward_stream(frames[index : index + 1])
        assert session.get_cache_tokens_per_layer() == want["cache_tokens"][index].tolist()
        assert {name: tuple(value.shape) for name, value in results.items()} == {
            name: (1, index + 1, *shape) for name, shape in SHAPES.items()
        }
    check(want, results)
    assert session.num_frames_processed == 8
    for layer, (keys, values, attention) in enumerate(session.aggregator_kv_cache_list):
        assert attention is None
        for half, tensor in (("k", keys), ("v", values)):
            assert tensor is not None
            expected = want[f"kv/{layer}/{half}"]
            got = want.thin(f"kv/{layer}/{half}", tensor[0])
            assert torch.allclose(in_any_order(got), in_any_order(expected), atol=2e-5)


def in_any_order(tokens: Tensor) -> Tensor:
    """`[heads, tokens, channels]` sorted by the first head's first channel, for the order of a cache means nothing."""
    return tokens[:, tokens[0, :, 0].argsort()]


def test_frames_of_one_call_see_both_ways_as_golden(
    model: STream3R, frames: Tensor, vggt_golden: Callable[[str], Any]
) -> None:
    want, session = vggt_golden("stream_chunked"), StreamSession(model, "causal")
    for part in frames.split(want.settings["chunks"]):
        results = session.forward_stream(part)
    check(want, results)


@pytest.mark.parametrize("in_one_call", [False, True])
def test_videos_of_a_batch_go_on_side_by_side(
    in_one_call: bool, model: STream3R, vggt_golden: Callable[[str], Any]
) -> None:
    given = vggt_golden("frames")
    images = torch.stack([given["frames_u8"][:3], given["frames_u8_b"]])
    if in_one_call:
        with torch.no_grad():
            results = model(images)
    else:
        session = StreamSession(model, "causal", num_frames=3)
        for index in range(3):
            results = session.forward_stream(images[:, index : index + 1])
        assert session.get_cache_tokens_per_layer() == [3 * TOKENS] * LAYERS
        keys = session.aggregator_kv_cache_list[0][0]
        assert keys is not None
        assert keys.shape == (2, 2, 3 * TOKENS, 16)
    check(vggt_golden("stream_b2"), results)
    assert torch.equal(results["images"], images / 255)


@pytest.mark.parametrize("name", ["p50_t0.5", "p60_t2", "p70_t0.2"])
def test_layerwise_eviction_reproduces_the_golden_run(name: str, model: STream3R, frames: Tensor) -> None:
    want = np.load(GOLDEN / f"eviction_stream3r_{name}.npz")
    options = json.loads(str(want["settings"]))
    session = StreamSession(
        model,
        mode="causal",
        num_frames=8,
        use_layerwise_eviction=True,
        budget_ratio=options["budget_ratio"],
        temp=options["temp"],
    )
    for index in range(8):
        results = session.forward_stream(frames[index : index + 1])
        kept = (want["kept_ids"][index] >= 0).sum(axis=1).tolist()
        assert session.get_cache_tokens_per_layer() == kept
        counts = [keys.shape[2] for keys, _, _ in session.aggregator_kv_cache_list if keys is not None]
        assert counts == kept
    for field in {"pose_enc", *DENSE} & set(want.files):
        got = results[field][0].squeeze(-1) if field == "depth" else results[field][0]
        thinned = got if field == "pose_enc" else got[:, ::7, ::7]
        assert np.all(np.abs(thinned.numpy() - want[field]) <= 5e-5 * (1 + np.abs(want[field]))), field


def test_eviction_that_violates_its_protection_can_empty_a_layer(model: STream3R, frames: Tensor) -> None:
    want = np.load(GOLDEN / "eviction_stream3r_violate_p40_t0.05.npz")
    options = json.loads(str(want["settings"]))
    session = StreamSession(
        model, "causal", 8, use_layerwise_eviction=True, budget_ratio=options["budget_ratio"], temp=options["temp"]
    )
    for index in range(7):
        session.forward_stream(frames[index : index + 1])
        counts = session.get_cache_tokens_per_layer()
        assert [keys.shape[2] for keys, _, _ in session.aggregator_kv_cache_list if keys is not None] == counts
    assert min(counts) < TOKENS + 6 * 5


def test_videos_of_an_evicting_batch_are_evicted_each_for_itself(model: STream3R, frames: Tensor) -> None:
    both = torch.stack([frames, frames.flip(0).flip(-1)])
    options: dict[str, Any] = {"num_frames": 8, "use_layerwise_eviction": True, "temp": 0.2}
    together = StreamSession(model, "causal", **options)
    alone = [StreamSession(model, "causal", **options) for _ in both]
    for index in range(8):
        results = together.forward_stream(both[:, index : index + 1])
        for video, session in zip(both, alone, strict=True):
            session.forward_stream(video[index : index + 1])
    counts = [session.get_cache_tokens_per_layer() for session in alone]
    assert counts[0] != counts[1]
    assert together.get_cache_tokens_per_layer() == [max(pair) for pair in zip(*counts, strict=True)]
    for row, session in enumerate(alone):
        assert torch.equal(results["depth"][row], session.get_all_predictions()["depth"][0])
    with pytest.raises(InputError, match="which make no common tensor"):
        _ = together.aggregator_kv_cache_list


def test_ratio_eviction_drops_a_part_of_the_patches(model: STream3R, frames: Tensor) -> None:
    session = StreamSession(model, "causal", num_frames=8, use_kv_compression=True, eviction_ratio=0.5)
    counts = []
    for index in range(3):
        session.forward_stream(frames[index : index + 1])
        counts.append(session.get_cache_tokens_per_layer())
    assert counts == [[25] * LAYERS, [25 + 5 + 10] * LAYERS, [25 + 10 + 15] * LAYERS]


def test_stream_of_unknown_length_grows_without_a_trace(
    model: STream3R, frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = StreamSession(model, "causal", num_frames=8)
    monkeypatch.setattr(stream3r_memory, "_FIRST_ROOM", 2)
    unknown, too_short = StreamSession(model, "causal"), StreamSession(model, "causal", num_frames=3)
    for part in frames.split([1, 1, 3, 1, 1, 1]):
        want = known.forward_stream(part)
        for session in (unknown, too_short):
            got = session.forward_stream(part)
            assert all(torch.equal(got[name], want[name]) for name in want)
    assert unknown.get_cache_tokens_per_layer() == [8 * TOKENS] * LAYERS


def test_stream_that_outgrows_the_machine_stops_as_it_was(
    model: STream3R, frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = StreamSession(model, "causal", num_frames=2)
    session.forward_stream(frames[:2])
    with monkeypatch.context() as patch:
        patch.setattr("longtake.memory.budget._room", lambda _: 1000)
        with pytest.raises(BudgetError, match="has room for 1"):
            session.forward_stream(frames[2:3])
    again = StreamSession(model, "causal", num_frames=3)
    again.forward_stream(frames[:2])
    got, want = session.forward_stream(frames[2:3]), again.forward_stream(frames[2:3])
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_window_shows_a_call_of_several_frames_all_that_is_remembered(model: STream3R, frames: Tensor) -> None:
    """The first frame, the five before the call, and the call itself: here that is everything up to frame 8."""
    windowed, causal = StreamSession(model, "window"), StreamSession(model, "causal")
    for part in (frames[:2], frames[2:4], frames[4:6], frames[6:8]):
        got, want = windowed.forward_stream(part), causal.forward_stream(part)
    assert windowed.get_cache_tokens_per_layer() == [6 * TOKENS] * LAYERS
    assert torch.allclose(got["depth"], want["depth"], atol=1e-5)
    more = frames[:2].flip(-1)
    got, want = windowed.forward_stream(more), causal.forward_stream(more)
    assert not torch.allclose(got["depth"][:, -2:], want["depth"][:, -2:], atol=1e-5)


def test_cleared_session_repeats_itself_and_takes_another_size_or_batch(model: STream3R, frames: Tensor) -> None:
    session = StreamSession(model, "causal", num_frames=8, use_layerwise_eviction=True)
    runs = []
    for _ in range(2):
        assert session.get_cache_tokens_per_layer() == [0] * LAYERS
        assert session.aggregator_kv_cache_list == [[None, None, None]] * LAYERS
        assert session.get_all_predictions() == session.last() == {}
        for index in range(5):
            results = session.forward_stream(frames[index : index + 1])
        runs.append(results)
        session.clear()
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in SHAPES)
    small = frames[:, :, :42, :56]
    results = session.forward_stream(torch.stack([small[:1], small[1:2]]))
    assert results["depth"].shape == (2, 1, 42, 56, 1)


def test_last_prediction_is_the_end_of_all_and_earlier_ones_stay(model: STream3R, frames: Tensor) -> None:
    session = StreamSession(model, "causal")
    first = session.forward_stream(frames[:1])
    before = {name: value.clone() for name, value in first.items()}
    for index in range(1, 4):
        results = session.forward_stream(frames[index : index + 1])
    assert all(torch.equal(first[name], before[name]) for name in before)
    assert all(value.device.type == "cpu" for value in results.values())
    for newest in (session.last(), session.get_last_prediction()):
        assert all(torch.equal(newest[name], results[name][:, -1:]) for name in SHAPES)


def test_call_that_fails_leaves_no_trace(model: STream3R, frames: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    plain, disturbed = StreamSession(model, "window"), StreamSession(model, "window")
    batch = torch.stack([frames, frames.flip(0)])
    for index in range(7):
        with monkeypatch.context() as patch:
            patch.setattr(model.depth_head, "forward", fail)
            with pytest.raises(RuntimeError, match="broken"):
                disturbed.forward_stream(batch[:, index : index + 1].flip(-1))
        want, got = (session.forward_stream(batch[:, index : index + 1]) for session in (plain, disturbed))
        assert torch.equal(got["depth"], want["depth"])


def test_autocast_decides_how_keys_are_stored(model: STream3R, frames: Tensor) -> None:
    session = StreamSession(model, "causal")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = session.forward_stream(frames[:1])
    keys, values, _ = session.aggregator_kv_cache_list[0]
    assert keys is not None
    assert values is not None
    assert keys.dtype == values.dtype == torch.bfloat16
    assert results["depth"].dtype == torch.float32


def test_model_in_training_tells_every_refinement_and_has_gradients(
    vggt_config: Mapping[str, GeometryConfig], frames: Tensor
) -> None:
    model = STream3R(56, 14, 32, "encoder", sizes=vggt_config["stream3r"]).train()
    results = model(frames[:2], "full")
    assert "images" not in results
    assert len(results["pose_enc_list"]) == 4
    assert torch.equal(results["pose_enc_list"][-1], results["pose_enc"])
    results["depth"].mean().backward()
    assert model.network.trunk.frame_blocks[0].attn.qkv.weight.grad is not None
    assert not any(weight.requires_grad for weight in model.network.encoder.parameters())


@pytest.mark.parametrize("how", ["file", "folder"])
def test_pretrained_weights_come_by_path(
    how: str, model: STream3R, frames: Tensor, tmp_path: Path, vggt_golden: Callable[[str], Any]
) -> None:
    file = tmp_path / "model.safetensors"
    save_geometry(model.network, file)
    loaded = STream3R.from_pretrained(tmp_path if how == "folder" else str(file)).to("cpu")
    assert not loaded.training
    assert all(weight.requires_grad for weight in loaded.parameters())
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert not any(value.is_meta for value in loaded.state_dict().values())
    with torch.no_grad():
        check(vggt_golden("batch_causal"), loaded(frames))


def test_weights_of_the_same_network_run_as_stream3r_and_others_are_refused(
    load_vggt: Callable[[str], GeometryModel], tiny_model: GeometryModel, frames: Tensor, tmp_path: Path
) -> None:
    save_geometry(load_vggt("streamvggt"), tmp_path / "streamvggt.safetensors")
    loaded = STream3R.from_pretrained(tmp_path / "streamvggt.safetensors")
    session = StreamSession(loaded, "causal")
    for index in range(2):
        results = session.forward_stream(frames[index : index + 1])
    with torch.no_grad():
        assert torch.allclose(results["pose_enc"], loaded(frames[:2])["pose_enc"], atol=1e-5)
    save_geometry(tiny_model, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"Expected weights of STream3R, but .*other\.safetensors is of another"):
        STream3R.from_pretrained(tmp_path / "other.safetensors")
    save_file({"aggregator.camera_token": torch.zeros(1)}, tmp_path / "part.safetensors")
    with pytest.raises(CheckpointError):
        STream3R.from_pretrained(tmp_path / "part.safetensors")


def test_published_size_has_the_published_parameters() -> None:
    with torch.device("meta"):
        model = STream3R()
    assert len(model.state_dict()) == 1403
    assert sum(weight.numel() for weight in model.parameters()) == 1_190_596_120


@pytest.mark.parametrize("name", PUBLISHED)
def test_signature_is_the_published_one(name: str) -> None:
    owner, method = name.split(".")
    function = inspect.getattr_static({"STream3R": STream3R, "StreamSession": StreamSession}[owner], method)
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("self")
    published = {name: value.default for name, value in parameters.items() if value.kind is not value.KEYWORD_ONLY}
    assert published == PUBLISHED[name]
    assert list(published) == list(PUBLISHED[name])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "full"}, "Expected the mode causal or window, but got 'full'; .* give whole clips to the model"),
        ({"mode": "sideways"}, "Expected the mode causal or window, but got 'sideways'"),
        ({"use_layerwise_eviction": True}, "give its num_frames"),
        ({"num_frames": 0}, "Expected num_frames of 1 at least"),
        ({"mode": "window", "num_frames": 8, "use_layerwise_eviction": True}, "eviction or a window, but got both"),
        ({"mode": "window", "use_kv_compression": True}, "eviction or a window, but got both"),
        ({"use_kv_compression": True, "importance_aggregation": "max"}, "sum or mean, .* but got 'max'"),
    ],
)
def test_options_that_have_no_meaning_are_refused_in_one_sentence(
    options: dict[str, Any], sentence: str, model: STream3R
) -> None:
    with pytest.raises(SettingError, match=sentence):
        StreamSession(model, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_frames": 8, "use_layerwise_eviction": True, "budget_ratio": 0.0},
        {"num_frames": 8, "use_layerwise_eviction": True, "temp": -1.0},
        {"use_kv_compression": True, "eviction_ratio": 1.5},
    ],
)
def test_numbers_out_of_range_are_refused_before_the_first_frame(options: dict[str, Any], model: STream3R) -> None:
    with pytest.raises(SettingError):
        StreamSession(model, "causal", **options)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda frames: frames[:0], "Expected images as"),
        (lambda frames: frames[0], "Expected images as"),
        (lambda frames: frames[:1, :, :42], "Expected a frame of 3 x 56 x 70 as this session was opened for"),
        (lambda frames: frames[:1, :2], "but got 2 x 56 x 70"),
        (lambda frames: torch.stack([frames[:1], frames[:1]]), r"Expected the 1 videos .* got 2; call clear\(\)"),
        (lambda frames: frames[:1] * 255, "Expected float pixels from 0 to 1"),
        (lambda frames: frames[:1] * torch.nan, "Expected finite pixels"),
        (lambda frames: frames[:1].long(), "Expected pixels as bytes or floats"),
    ],
)
def test_bad_images_are_refused_and_the_stream_stays_as_it_was(
    bad: Callable[[Tensor], Tensor], sentence: str, model: STream3R, frames: Tensor
) -> None:
    session = StreamSession(model, "window")
    with pytest.raises(InputError):
        session.forward_stream(frames[:0])
    session.forward_stream(frames[:1])
    with pytest.raises(InputError, match=sentence):
        session.forward_stream(bad(frames))
    assert session.num_frames_processed == 1
    assert session.get_cache_tokens_per_layer() == [TOKENS] * LAYERS


def test_more_frames_than_there_is_room_for_are_refused(model: STream3R, frames: Tensor) -> None:
    evicting = StreamSession(model, "causal", num_frames=3, use_layerwise_eviction=True)
    with pytest.raises(InputError, match="Expected 3 frames in all, as num_frames said, but these would make 4"):
        evicting.forward_stream(frames[:4])
    evicting.forward_stream(frames[:2])
    with pytest.raises(InputError, match="would make 4; open a session with a larger num_frames"):
        evicting.forward_stream(frames[2:4])
    evicting.forward_stream(frames[2:3])
    windowed = StreamSession(model, "window")
    windowed.forward_stream(frames[:1])
    with pytest.raises(InputError, match="no more than the 1 frames of the first call"):
        windowed.forward_stream(frames[1:3])


@pytest.mark.parametrize("calls", [[3, 3, 2], [8]])
@pytest.mark.parametrize(
    "options", [{"use_layerwise_eviction": True}, {"use_kv_compression": True}, {"mode": "window"}]
)
def test_calls_of_several_frames_find_room_under_every_rule(
    calls: list[int], options: dict[str, Any], model: STream3R, frames: Tensor
) -> None:
    session = StreamSession(model, num_frames=8, **options)
    for part in frames.split(calls):
        results = session.forward_stream(part)
    assert results["depth"].shape == (1, 8, 56, 70, 1)
    assert torch.isfinite(results["depth"]).all()


def test_clips_that_cannot_be_seen_are_refused(model: STream3R, frames: Tensor) -> None:
    with pytest.raises(SettingError, match="Expected a mode among causal, window, full, but got 'context'"):
        model(frames, mode="context")
    with pytest.raises(SettingError, match="stream with StreamSession"):
        model(frames, aggregator_kv_cache_list=[[None, None]])
    with pytest.raises(SettingError, match="Expected freeze to be none or encoder, but got 'all'"):
        model.set_freeze("all")
    for bad in (frames[:0], frames[:, :2], frames * 2, frames[..., :69]):
        with pytest.raises(LongtakeError):
            model(bad)


@pytest.mark.parametrize("mode", ["crop", "pad"])
def test_pictures_become_model_pixels_of_one_size(mode: str, tmp_path: Path) -> None:
    for name, size in (("wide", (400, 300)), ("high", (300, 400))):
        Image.new("RGB", size, (255, 0, 51)).save(tmp_path / f"{name}.png")
    paths = [str(tmp_path / "wide.png"), tmp_path / "high.png"]
    pixels = load_and_preprocess_images(paths, mode)
    assert pixels.shape == (2, 3, 518, 518)
    assert pixels[0, :, 259, 259].tolist() == pytest.approx([1.0, 0.0, 0.2])
    assert load_and_preprocess_images(paths[:1]).shape == (1, 3, 392, 518)
    with pytest.raises(SettingError, match="crop or pad, but got 'square'"):
        load_and_preprocess_images(paths, "square")
    with pytest.raises(InputError, match="at least one picture"):
        load_and_preprocess_images([])
    with pytest.raises(InputError, match=r"nothing\.png"):
        load_and_preprocess_images([tmp_path / "nothing.png"])


IMPORTS = """
from stream3r.models.stream3r import STream3R
from stream3r.stream_session import StreamSession
from stream3r.models.components.utils.load_fn import load_and_preprocess_images
"""

SCRIPT = f"""
import os
import torch
{IMPORTS}

def cached_tokens(session):
    return [0 if layer[0] is None else layer[0].shape[2] for layer in session.aggregator_kv_cache_list]

def cached_bytes(session):
    halves = [half for layer in session.aggregator_kv_cache_list for half in layer[:2] if half is not None]
    return sum(half.element_size() * half.nelement() for half in halves)

device = "cuda" if torch.cuda.is_available() else "cpu"
model = STream3R.from_pretrained("weights").to(device).eval()
names = [os.path.join("pictures", name) for name in sorted(os.listdir("pictures"))]
images = load_and_preprocess_images(names).to(device)
with torch.no_grad():
    clip = model(images, mode="causal")

session = StreamSession(model, mode="causal")
with torch.no_grad():
    for index in range(images.shape[0]):
        stream = session.forward_stream(images[index : index + 1])
    session.clear()

evicting = StreamSession(
    model, mode="causal", num_frames=len(images), use_layerwise_eviction=True, budget_ratio=0.5, temp=0.5
)
with torch.no_grad():
    for index in range(len(images)):
        print(sum(cached_tokens(evicting)), cached_bytes(evicting))
        evicting.forward_stream(images[index : index + 1])
counts = cached_tokens(evicting)
newest = evicting.get_last_prediction()
"""


def test_script_runs_with_other_import_lines(
    model: STream3R, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights").mkdir()
    save_geometry(model.network, tmp_path / "weights" / "model.safetensors")
    (tmp_path / "pictures").mkdir()
    generator = np.random.default_rng(0)
    for index in range(4):
        pixels = generator.integers(0, 256, (28, 185, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{index}.png")
    ours = "from longtake.compat.stream3r import STream3R, StreamSession, load_and_preprocess_images\n"
    (tmp_path / "script.py").write_text(SCRIPT.replace(IMPORTS, ours))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    script = runpy.run_path("script.py")
    assert torch.allclose(script["clip"]["depth"], script["stream"]["depth"], atol=1e-4)
    tokens = 5 + 37 * 6
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["0 0", f"{tokens * LAYERS} {tokens * LAYERS * 2 * 32 * 4}"]
    assert sum(script["counts"]) < 4 * tokens * LAYERS
    assert script["newest"]["world_points"].shape == (1, 1, 84, 518, 3)
