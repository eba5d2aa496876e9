"""Shape checks for every annotated function, one torch thread so that runs repeat bit for bit, golden numbers."""

import os

import checked
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported, by whomever
checked.install("longtake", "training", "benchmarks")

import json  # noqa: E402
import math  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import forked  # noqa: E402
import pytest  # noqa: E402
import remembered  # noqa: E402
from chromium import browser, launch  # noqa: E402, F401 - fixtures, one browser for all tests that want it
from done import Done  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch import Tensor  # noqa: E402

from longtake.geometry.config import (  # noqa: E402
    Attention,
    CameraConfig,
    DenseConfig,
    EncoderConfig,
    GeometryConfig,
    TrunkConfig,
)
from longtake.geometry.model import GeometryModel  # noqa: E402
from longtake.runtime import record  # noqa: E402
from longtake.weights.published import UNUSED, published_name, rename_published  # noqa: E402

record.fingerprint = remembered.once_for_each_state(record.fingerprint)
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start: two of them share two cores

GOLDEN = Path(__file__).parent / "golden"

TINY = GeometryConfig(
    width=128,
    patch=14,
    encoder=EncoderConfig(depth=2, heads=2, registers=4, side=4),
    trunk=TrunkConfig(depth=5, heads=2, registers=4, selected=(1, 2, 3, 4)),
    camera=CameraConfig(depth=2, heads=2, iterations=4),
    dense=DenseConfig(features=32, channels=(16, 32, 48, 48), points=True),
)

TINY_VGGT = GeometryConfig(
    width=32,
    patch=14,
    encoder=EncoderConfig(depth=2, heads=2, registers=4, side=4),
    trunk=TrunkConfig(depth=4, heads=2, registers=4, selected=(0, 1, 2, 3), scale_token=False, temporal_rotary=False),
    camera=CameraConfig(depth=2, heads=2, iterations=4, camera_from_world=True),
    dense=DenseConfig(features=16, channels=(8, 12, 16, 16), points=True),
    attention=Attention.FULL,
)
TINY_FAMILY = {
    "vggt": TINY_VGGT,
    "stream3r": replace(TINY_VGGT, attention=Attention.CAUSAL),
    "streamvggt": replace(TINY_VGGT, attention=Attention.CAUSAL, camera=replace(TINY_VGGT.camera, shared_memory=True)),
}


@dataclass(frozen=True)
class Golden:
    """One golden file: its tensors (half precision upcast to float32), the run's settings, and what was thinned."""

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    every_fourth_pixel: frozenset[str]
    every_fourth_channel: frozenset[str]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def thin(self, name: str, got: Tensor) -> Tensor:
        """The part of `got` that the file kept of `name`."""
        if name in self.every_fourth_pixel:
            return got[:, ::4, ::4]
        return got[..., ::4] if name in self.every_fourth_channel else got

    def error(self, name: str, got: Tensor, *, floor: float = 1.0) -> float:
        """Worst |got - want| / (floor + |want|); floor 0 measures against the tensor's own maximum."""
        want = self.tensors[name]
        got = self.thin(name, got.detach())
        assert got.shape == want.shape, f"{name}: got {tuple(got.shape)}, want {tuple(want.shape)}"
        scale = floor + want.abs() if floor else want.abs().max()
        return float(((got - want).abs() / scale).max())

    def check(self, name: str, got: Tensor, *, tolerance: float = 2e-5, floor: float = 1.0) -> None:
        error = self.error(name, got, floor=floor)
        print(f"golden {name}: {error:.2e}")
        assert error <= tolerance, f"{name} is off by {error:.2e}, more than {tolerance:.0e}"


def read_golden(family: str, name: str) -> Golden:
    with safe_open(GOLDEN / family / f"{name}.safetensors", framework="pt") as file:
        header = {key: json.loads(text) for key, text in file.metadata().items()}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    halves = (torch.float16, torch.bfloat16)
    return Golden(
        tensors={key: value.float() if value.dtype in halves else value for key, value in tensors.items()},
        settings=header["settings"],
        every_fourth_pixel=frozenset(header["every_fourth_pixel"]),
        every_fourth_channel=frozenset(header["every_fourth_channel"]),
    )


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """Reads one file of tests/golden/gct by name."""
    return lambda name: read_golden("gct", name)


@pytest.fixture(scope="session")
def golden_frames(golden: Callable[[str], Golden]) -> Tensor:
    """The 14 golden frames as model input, [1, 14, 3, 42, 70] in 0..1."""
    return golden("frames")["frames_u8"][None].float() / 255


@pytest.fixture(scope="session")
def tiny_config() -> GeometryConfig:
    """The sizes of the golden network."""
    return TINY


@pytest.fixture(scope="session")
def load_tiny(golden: Callable[[str], Golden]) -> Callable[..., GeometryModel]:
    """Builds the golden network; `config` may differ in what has no weights, `factors` rescale published names."""
    state = golden("weights").tensors

    def load(config: GeometryConfig = TINY, factors: Sequence[tuple[str, float]] = ()) -> GeometryModel:
        scaled = dict(state)
        for pattern, factor in factors:
            scaled |= {key: value * factor for key, value in scaled.items() if re.search(pattern, key)}
        model = GeometryModel(config)
        model.load_state_dict(rename_published(scaled))
        return model.eval()

    return load


@pytest.fixture(scope="session")
def tiny_model(load_tiny: Callable[..., GeometryModel]) -> GeometryModel:
    """The golden network; tests share it and must leave it as it is."""
    return load_tiny().requires_grad_(False)


@pytest.fixture(scope="session")
def vggt_golden() -> Callable[[str], Golden]:
    """Reads one file of tests/golden/stream3r by name."""
    return lambda name: read_golden("stream3r", name)


@pytest.fixture(scope="session")
def vggt_frames(vggt_golden: Callable[[str], Golden]) -> Tensor:
    """The 8 golden frames of that folder as model input, [1, 8, 3, 56, 70] in 0..1."""
    return vggt_golden("frames")["frames_u8"][None].float() / 255


@pytest.fixture(scope="session")
def vggt_config() -> Mapping[str, GeometryConfig]:
    """The sizes of that folder's three networks: stream3r, streamvggt, vggt."""
    return TINY_FAMILY


@pytest.fixture(scope="session")
def vggt_weights(vggt_golden: Callable[[str], Golden]) -> Callable[[str], dict[str, Tensor]]:
    """Weights of those networks under published names, drawn as they were for the golden runs."""
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in GeometryModel(TINY_VGGT).state_dict().items()}
    published = {str(published_name(name)): shape for name, shape in shapes.items()}
    published |= dict.fromkeys(UNUSED, torch.Size((1, TINY_VGGT.width)))
    want = vggt_golden("weight_sums")

    @cache
    def draw(model: str) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(want.settings["seeds"][model])
        state = {key: _draw(key, published[key], generator) for key in sorted(published)}
        sums = torch.stack([value.double().sum() for value in state.values()])
        assert torch.allclose(sums, want[model], atol=1e-4), "this torch draws other numbers from the same seed"
        return state

    return draw


def _draw(key: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """One tensor of a tiny network of tests/golden/stream3r; its README says the rules in words."""
    if key.endswith(".gamma"):
        return 0.25 + 0.5 * torch.rand(shape, generator=generator)
    normal = torch.randn(shape, generator=generator)
    last = 0.5 if ".output_conv2.2." in key else 1.0
    if key.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.4 + 0.25 * normal
    if key == "camera_head.pose_branch.fc2.bias":
        return torch.cat([0.1 * normal[:6], torch.tensor([1.0, 0.8, 0.8])])
    if key.endswith(".bias"):
        return last * 0.1 * normal
    if len(shape) == 1:
        return 1 + 0.15 * normal
    if not key.endswith(".weight"):
        return 0.5 * normal
    upsampling = ".resize_layers.0." in key or ".resize_layers.1." in key
    spread = normal / math.sqrt(shape[1] if upsampling else math.prod(shape[1:]))
    return spread * (0.2 if ".pose_branch.fc2." in key else last)


@pytest.fixture(scope="session")
def load_vggt(vggt_weights: Callable[[str], dict[str, Tensor]]) -> Callable[[str], GeometryModel]:
    """The golden network of this name; tests share it and must leave it as it is."""

    @cache
    def load(name: str) -> GeometryModel:
        model = GeometryModel(TINY_FAMILY[name])
        model.load_state_dict(rename_published(vggt_weights(name)))
        return model.eval().requires_grad_(False)

    return load


@pytest.fixture(scope="session")
def word_language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the golden language model with a tokenizer of words: w83 for id 83, but for a few with a meaning."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    golden, folder = GOLDEN / "vlm", tmp_path_factory.mktemp("language")
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(golden / name, folder / name)
    (folder / "preprocessor_config.json").write_text(json.dumps({"min_pixels": 3136, "max_pixels": 12_845_056}))
    stated = json.loads((golden / "tokens.json").read_text())
    special = {name: stated["ids"][key] for key, name in stated["names"].items() if key != "nl"}
    named = {"\n": stated["ids"]["nl"], "yes": 80, "no": 81, "maybe": 82}
    named |= {role: stated["ids"][role] for role in ("system", "user", "assistant")}
    taken = {*special.values(), *named.values()}
    words = {f"w{token}": token for token in range(256) if token not in taken}
    tokenizer = Tokenizer(WordLevel(special | named | words, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = Split(Regex(r"\n|\S+"), "removed", invert=True)
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def offline(word_language: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment without a network, whose hub cache has the tiny language model under the published one's name."""
    cache, revision = tmp_path_factory.mktemp("hub"), "0123456789abcdef0123456789abcdef01234567"
    repository = cache / "models--Qwen--Qwen2.5-VL-3B-Instruct"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    shutil.copytree(word_language, repository / "snapshots" / revision)
    return {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def fork_server(offline: dict[str, str]) -> None:
    """From now on, processes with all that commands import can be forked, in that environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in offline.items():
            patch.setenv(name, value)
        forked.start()


@pytest.fixture(scope="session")
def longtake(fork_server: None) -> Callable[..., Done]:
    """Runs the command line in a process of its own."""
    return forked.run


@pytest.fixture(scope="session")
def run_program(fork_server: None) -> Callable[..., Done]:
    """Runs a program in a process of its own."""
    return forked.run_program
