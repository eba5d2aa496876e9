"""A short walk that comes back, and a rule by which a network of random weights knows its places again.

Its depth is of no world, but it is the same for the same picture: loops are found, verified, solved and adopted by what
closes them elsewhere, in seconds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from torn_video import TornVideo

from longtake.geometry.model import GeometryModel
from longtake.hub.load import loop_card_of
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.places.index import IndexRule
from longtake.places.loop_card import LoopCard
from longtake.places.loop_choice import LoopChoice
from longtake.places.loop_rule import LoopRule
from longtake.places.tracking import TrackingRule
from longtake.runtime.build import SessionSettings
from longtake.runtime.windows import Windows
from longtake.world.tour import Tour

WIDTH, HEIGHT = 56, 42
NUM_FRAMES, ADOPTED, TORN = 46, 33, frozenset({4})
"""Frames; the one with which a loop moves what was said, if none is torn; those that cannot be read."""
NUM_DARK = 5
SESSION = SessionSettings(
    image_size=WIDTH,
    num_scale_frames=2,
    retention=ContextRetention(anchors=2, window=3, history=12),
    windows=Windows(size=8, overlap_frames=3),
)


def pictures(num_frames: int = NUM_FRAMES) -> list[np.ndarray]:
    """There and back, and on."""
    views = islice(Tour(seed=3, width=WIDTH, height=HEIGHT).views(), 14)
    there = [(view.image.movedim(0, -1) * 255).round().byte().numpy() for view in views]
    return (there + there[::-1] + there + there[::-1])[:num_frames]


def with_darkness() -> list[np.ndarray]:
    """There, some frames in the dark, and the same way once more."""
    there = pictures(14)
    return there + [np.zeros_like(there[0])] * NUM_DARK + there + there[::-1]


def easy_card() -> LoopCard:
    """That believes whatever eight points agree on."""
    card = loop_card_of("micro-map")
    assert card is not None
    return replace(
        card,
        least_agreeing=8,
        least_agreeing_share=0.0,
        least_depth_agreement=0.0,
        least_colour_agreement=0.0,
        least_texture_agreement=0.0,
        most_turn_deviation_rad=10.0,
    )


EASY_RULE = LoopRule(
    index=IndexRule(every_frames=1, gap_frames=10, max_places=64),
    least_similarity=-1.0,
    verify_every=2,
    adopt_after=3,
    tracking=TrackingRule(per_angle=0.0),
)
"""What random weights find alike says nothing of whether the camera is lost: colours alone do."""


def easy_loops() -> LoopChoice:
    return LoopChoice(card=easy_card(), rule=EASY_RULE, why="for a test")


def run(
    model: GeometryModel,
    out: Path,
    *,
    loops: LoopChoice | None = None,
    resume: bool = False,
    every: int = 5,
    shown: Sequence[np.ndarray] | None = None,
) -> Run:
    """With loops unless others are given, of the walk that comes back unless other pictures are shown."""
    settings = MapSettings(
        session=SESSION,
        outputs=Outputs(formats=("ply", "kitti")),
        checkpoints=CheckpointRule(every),
        loops=easy_loops() if loops is None else loops,
    )
    video = TornVideo("returning", pictures() if shown is None else shown, TORN)
    return map_video(video, model, out, settings, resume=resume)


def files(folder: Path) -> dict[str, bytes]:
    """Those that depend on the video alone."""
    said = {"progress.jsonl", "summary.json", "report.html"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in said
    }
