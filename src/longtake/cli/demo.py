"""`longtake demo`: a generated clip through a tiny network, streamed, checked and drawn.

The weights are random, so the pictures show the machinery at work and no geometry.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch import Tensor

from longtake.attention.masks import arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.model import GeometryModel
from longtake.memory.retention import Keep
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.retention import ContextRetention, MemoryPlan
from longtake.runtime.session import GeometrySession
from longtake.types import Geometry
from longtake.weights.presets import TINY

SIZE = (98, 126)
RETENTION = ContextRetention(anchors=2, window=6, history=64)
SCALE_FRAMES = 4
KEYFRAMES = EveryNth(2)
_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFigures:
    """What the demo measured."""

    frames: int
    keyframes: int
    frames_per_s: float
    memory_bytes: int
    stream_to_clip_error: float
    resumed_is_identical: bool


def run(out: Path, num_frames: int) -> None:
    console = Console()
    console.print("[bold]The weights are random:[/] this shows the machinery at work, not geometry.", highlight=False)
    torch.set_num_threads(1)  # the network is too small to share
    torch.manual_seed(0)
    model = GeometryModel(TINY).eval().requires_grad_(requires_grad=False)
    clip = generate_clip(num_frames)
    session = open_session(model)
    start = time.perf_counter()
    streamed = [session.step(frame) for frame in track(clip, "streaming", console=Console(stderr=True))]
    streamed.append(session.finish())
    seconds = time.perf_counter() - start
    figures = DemoFigures(
        frames=num_frames,
        keyframes=session.num_kept,
        frames_per_s=num_frames / seconds,
        memory_bytes=session.num_bytes,
        stream_to_clip_error=error_to_whole_clip(model, clip, streamed),
        resumed_is_identical=resumed_equals_unbroken(model, clip, streamed),
    )
    out.mkdir(parents=True, exist_ok=True)
    draw(clip, torch.cat([part.depth for part in streamed])).save(out / "demo.png")
    fields = {name: getattr(figures, name) for name in DemoFigures.__slots__}
    (out / "demo.json").write_text(json.dumps(fields, indent=1) + "\n")
    same = "bit-identical" if figures.resumed_is_identical else "DIFFERENT"
    console.print(
        f"{figures.frames} frames, {figures.keyframes} kept, {figures.frames_per_s:.0f} frames/s, memory of "
        f"{figures.memory_bytes / 1e6:.2f} MB allocated once; streamed against the whole clip in one masked pass: "
        f"{figures.stream_to_clip_error:.1e}; saved, resumed: {same}; see {out / 'demo.png'}",
        highlight=False,
    )


def open_session(model: GeometryModel) -> GeometrySession:
    plan = MemoryPlan(config=model.config, size=SIZE, retention=RETENTION, num_scale_frames=SCALE_FRAMES)
    return GeometrySession(model, plan, keyframes=KEYFRAMES)


def generate_clip(num_frames: int) -> UInt8[Tensor, "frames 3 height width"]:
    """Stripes and a disc that drift as if the camera moved past them at two depths."""
    rows = torch.linspace(-1, 1, SIZE[0])[:, None]
    columns = torch.linspace(-1.3, 1.3, SIZE[1])[None, :]
    frames = []
    for index in range(num_frames):
        shift = 0.03 * index
        wall = [0.5 + 0.35 * torch.sin(9 * (columns + shift) + phase) * torch.cos(7 * rows) for phase in (0, 1, 2)]
        disc = (columns - 0.8 + 2 * shift % 3.2) ** 2 + rows**2 < 0.2
        colour = torch.tensor([0.9, 0.35, 0.2])[:, None, None]
        frames.append(torch.where(disc, colour, torch.stack(wall)))
    return (torch.stack(frames) * 255).to(torch.uint8)


def error_to_whole_clip(model: GeometryModel, clip: Tensor, streamed: list[Geometry]) -> float:
    """Largest |difference| / (1 + |value|) of pose and depth to one masked pass over all frames at once."""
    scale = min(SCALE_FRAMES, len(clip))
    sequence = arrivals(scale, [KEYFRAMES.before(step) is Keep.YES for step in range(len(clip) - scale)])
    tokens_per_frame = model.config.tokens_per_frame(*SIZE)
    masks = {
        TRUNK: clip_mask(RETENTION.trunk(model.config, SIZE), sequence, tokens_per_frame),
        CAMERA: clip_mask(RETENTION.camera(), sequence, 1),
    }
    recall = ClipRecall(masks, clip_ordinals(sequence), scale)
    whole = model(clip.unsqueeze(0).float() / 255, recall, model.grid(*SIZE))
    pairs = (
        (torch.cat([part.pose_encoding for part in streamed]), whole.pose_encoding[0]),
        (torch.cat([part.depth for part in streamed]), whole.depth[0]),
    )
    return max(float(((got - want).abs() / (1 + want.abs())).max()) for got, want in pairs)


def resumed_equals_unbroken(model: GeometryModel, clip: Tensor, streamed: list[Geometry]) -> bool:
    """Whether a session saved half-way and resumed from its file gives the same bits as the unbroken one."""
    half = len(clip) // 2
    first = open_session(model)
    for frame in clip[:half]:
        first.step(frame)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.safetensors"
        first.save(path)
        second = GeometrySession.resume(path, model)
    rest = [*map(second.step, clip[half:]), second.finish()]
    want = torch.cat([part.depth for part in streamed])
    got = torch.cat([part.depth for part in rest])
    return torch.equal(got, want[len(want) - len(got) :])


def draw(clip: Tensor, depth: Float[Tensor, "frames height width"]) -> Image.Image:
    """A row of frames over a row of their depths, near to far as dark to bright."""
    chosen = torch.linspace(0, len(clip) - 1, min(_SHOWN, len(clip))).long()
    shown = depth[chosen]
    grey = ((shown - shown.min()) / (shown.max() - shown.min()).clamp_min(1e-9) * 255).to(torch.uint8)
    pictures = torch.cat([clip[chosen], grey[:, None].expand(-1, 3, -1, -1)], dim=2)
    return Image.fromarray(torch.cat(list(pictures), dim=2).permute(1, 2, 0).numpy())
