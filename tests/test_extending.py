"""A policy, a backend, an export, a source and a network of somebody else, each at most 40 lines in a file of its own.

They are used as ours are, by the names that ARCHITECTURE.md gives them: `module:attribute`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import longtake
from longtake.cli.main import app
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.weights.presets import TINY_CAUSAL

MOST_LINES = 40
WALK = "world:9?frames=12&size=126x98"

POLICY = '''
from dataclasses import dataclass

from longtake.memory.policy import LockstepPolicy
from longtake.memory.tokens import Flags, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest(LockstepPolicy):
    """The newest frames, whole."""

    most: int = 6

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:
        return tokens.frame >= num_kept - self.most

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        return min(num_kept, self.most) * tokens_per_frame

    @property
    def full_after(self) -> int | None:
        return self.most
'''

BACKEND = '''
import math

import torch

from longtake.attention.backend import Attended, Keys, Queries


class Exact:
    """Attention in float64."""

    name = "own_backend:Exact"

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        logits = torch.einsum("bqhd,bkhd->bqhk", q.double(), k.double()) / math.sqrt(q.shape[-1])
        values = torch.einsum("bqhk,bkhd->bqhd", logits.softmax(-1), v.double())
        return Attended(values.to(q.dtype), logits.logsumexp(-1).float())
'''

EXPORT = '''
from pathlib import Path

from longtake.exports.formats import Format
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import Sink


class CentresSink(Sink):
    """Where the camera was, a line for each frame."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, frame: MappedFrame) -> None:
        print(*frame.world_from_camera[:3, 3].tolist(), file=self._file)

    def close(self) -> None:
        self._file.close()


CENTRES = Format(name="centres", file="centres.txt", open=lambda options: CentresSink(options.path))
'''

SOURCE = '''
from collections.abc import Iterator
from functools import partial

import numpy as np

from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.sampling import Extent, FrameSampling
from longtake.video.source import SourceOptions


class Noise(Source):
    """Random pictures, ten a second."""

    def __init__(self, text: str, sampling: FrameSampling, options: SourceOptions) -> None:
        super().__init__(f"noise of {text} frames", sampling)
        self._count = int(text)

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=self._count, fps=10.0)

    def all_frames(self) -> Iterator[PendingFrame]:
        for place in range(self._count):
            yield PendingFrame(place / 10, partial(self._draw, place))

    def _draw(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, 256, (98, 126, 3), dtype=np.uint8)
'''

NETWORK = """
from pathlib import Path

from longtake.hub.load import PublishedNetwork
from longtake.weights.published import Family
from longtake.weights.presets import TINY_CAUSAL

TOY = PublishedNetwork(
    weights=Path(__file__).with_name("toy.safetensors"),
    config=TINY_CAUSAL,
    family=Family(
        "the toy of another laboratory",
        has=(r"student[.]",),
        skipped=r"teacher[.]",
        our_name=lambda name: name.removeprefix("student."),
    ),
)
"""

OWN = {"policy": POLICY, "backend": BACKEND, "export": EXPORT, "source": SOURCE, "network": NETWORK}


@pytest.fixture
def toy() -> GeometryModel:
    return random_model(TINY_CAUSAL, torch.device("cpu"))


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: GeometryModel) -> Callable[..., None]:
    """Write these modules where Python finds them."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def write(*kinds: str) -> None:
        for kind in kinds:
            text = OWN[kind].strip() + "\n"
            assert len(text.splitlines()) <= MOST_LINES
            monkeypatch.delitem(sys.modules, f"own_{kind}", raising=False)
            (folder / f"own_{kind}.py").write_text(text, encoding="utf-8")
        theirs = {f"student.{name}": tensor for name, tensor in toy.state_dict().items()}
        save_file(theirs | {"teacher.centre": torch.zeros(3)}, folder / "toy.safetensors")

    return write


def test_a_policy(add: Callable[..., None]) -> None:
    add("policy")
    with longtake.GeometrySession.from_pretrained(
        "micro-map", policy="own_policy:Newest", keyframes="every:1", windows="none", loops=False
    ) as session:
        for frame in longtake.open_video(WALK):
            session.step(frame)
        assert sorted(set(session._clock.value.session.remembered(0).frame.tolist())) == [6, 7, 8, 9, 10, 11]  # type: ignore[union-attr]


def test_a_backend(add: Callable[..., None], tmp_path: Path) -> None:
    add("backend")
    path = tmp_path / "session.safetensors"
    sessions = [
        longtake.GeometrySession.from_pretrained("micro-map", device="cpu", backend=name)
        for name in ("own_backend:Exact", "reference")
    ]
    for frame in longtake.open_video(WALK):
        own, reference = (session.step(frame) for session in sessions)
    assert torch.allclose(own.depth, reference.depth, rtol=1e-4)
    sessions[0].save(path)
    with pytest.raises(SavedSessionError, match="backend of your own, 'own_backend:Exact'; name it when you resume"):
        longtake.GeometrySession.resume(path, "micro-map", device="cpu")
    resumed = longtake.GeometrySession.resume(path, "micro-map", device="cpu", backend="own_backend:Exact")
    assert resumed.info.num_frames == 12


def test_an_export(add: Callable[..., None], tmp_path: Path) -> None:
    add("export")
    take = longtake.map(WALK, tmp_path / "mapped", format="tum,depth")
    take.export(tmp_path / "out", format="own_export:CENTRES")
    assert np.allclose(np.loadtxt(tmp_path / "out" / "centres.txt"), take.trajectory.positions)


def test_a_source(add: Callable[..., None]) -> None:
    add("source")
    video = longtake.open_video("own_source:Noise?6", stride=2)
    assert (video.name, video.num_frames) == ("noise of 6 frames", 3)
    assert [frame.timestamp_s for frame in video] == [0.0, 0.2, 0.4]


def test_a_network(add: Callable[..., None], toy: GeometryModel) -> None:
    add("network")
    loaded = longtake.load_model("own_network:TOY", device="cpu")
    assert loaded.config == toy.config
    assert all(torch.equal(tensor, toy.state_dict()[name]) for name, tensor in loaded.state_dict().items())


def test_all_of_them_from_the_command(add: Callable[..., None], tmp_path: Path) -> None:
    add(*OWN)
    words = "map own_source:Noise?6 --model own_network:TOY --policy own_policy:Newest --backend own_backend:Exact"
    out = tmp_path / "mapped"
    told = CliRunner().invoke(
        app, [*words.split(), "--device", "cpu", "--format", "tum,depth,own_export:CENTRES", "--out", str(out)]
    )
    assert told.exit_code == 0, told.output
    assert len(longtake.open_take(out)) == 6
    assert len(np.loadtxt(next(out.rglob("centres.txt")))) == 6


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda: longtake.open_video("json:__name__"), "to return a longtake.video.reading.Source, but got str"),
        (lambda: longtake.open_video("no_such:open"), "a function that opens a source, at 'no_such:open'"),
        (
            lambda: longtake.load_model("json:load"),
            "PublishedNetwork at 'json:load', but got function",
        ),
        (
            lambda: longtake.load_model("no_such:NET"),
            "a published network, at 'no_such:NET', but it cannot",
        ),
        (
            lambda: longtake.GeometrySession.from_pretrained("micro-map", backend="types:SimpleNamespace"),
            "longtake.attention.backend.Backend from 'types:SimpleNamespace', but got SimpleNamespace",
        ),
    ],
)
def test_what_is_no_such_thing_is_refused_in_a_sentence(use: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        use()
