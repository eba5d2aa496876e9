"""A walk that was mapped with loops and is kept in memory: a world in which another one can find its way."""

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from benchmarks.following import Followed
from benchmarks.loop_network import SIZE, LoopNetwork
from longtake.places.index import PlaceIndex
from longtake.places.key_view import KeyView, shared_intrinsics
from longtake.places.loop_rule import LoopRule
from longtake.places.looped_session import LoopedSession
from longtake.places.spans import Spans, begins_of
from longtake.places.verification import Verifier, rigid
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, Geometry
from longtake.world.tour import Tour


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownWalk:
    """As a take of the same walk would be read back."""

    index: PlaceIndex
    frames: list[Geometry]
    """Each as it was known at the end; its camera is in `cameras`."""
    cameras: Float64[Tensor, "frames 4 4"]
    pictures: dict[int, UInt8[Tensor, "3 height width"]]
    """Of places."""
    truth: Float64[Tensor, "frames 4 4"]
    intrinsics: Float64[Tensor, "3 3"]
    is_settled: bool
    """Whether loops laid it."""

    @classmethod
    def walked(cls, network: LoopNetwork, seed: int, walk: int, *ends: int) -> list["KnownWalk"]:
        """One of the ways through a house, as it is known where it ends after so many frames, or so many, ..."""
        tour = Tour(seed=seed, width=SIZE[1], height=SIZE[0], walk=walk)
        session = LoopedSession(network.open(), Verifier(network.card))
        followed, truth, pictures, known = Followed(every=1), list[Tensor](), dict[int, Tensor](), []
        for view in itertools.islice(tour.views(), max(ends)):
            truth.append(view.world_from_camera.double())
            pictures[view.index] = (view.image * 255).round().byte()
            followed.hear(session.step(pictures[view.index], view.timestamp_s))
            if view.index + 1 in ends:
                heard, branch = followed.copy(), session.fork()
                heard.hear(branch.finish())
                loops = branch.progress.loops
                branch.close()
                known.append(
                    cls._of(heard, torch.stack(truth), pictures, is_settled=loops is not None and loops.num_loops > 0)
                )
        return known

    @classmethod
    def _of(
        cls,
        followed: Followed,
        truth: Float64[Tensor, "frames 4 4"],
        pictures: Mapping[int, Tensor],
        *,
        is_settled: bool,
    ) -> "KnownWalk":
        frames = [followed.kept[frame] for frame in range(len(truth))]
        index = _index_of(frames)
        return cls(
            index=index,
            frames=frames,
            cameras=followed.trajectory(),
            pictures={int(frame): pictures[int(frame)] for frame in index.frame},
            truth=truth,
            intrinsics=shared_intrinsics([one.intrinsics[0].double() for one in frames]),
            is_settled=is_settled,
        )

    def view(self, frame: int) -> KeyView:
        """A place as it is verified by."""
        return KeyView.of(self.frames[frame], 0, self.pictures[frame], self.intrinsics)

    def camera(self, frame: int) -> Float64[Tensor, "4 4"]:
        return self.cameras[frame]

    def spans(self, rule: LoopRule) -> Spans:
        """What of it moves as a whole."""
        begins = begins_of(range(len(self.frames)), [one.window[0] for one in self.frames], rule)
        return Spans(
            tuple(begins),
            len(self.frames) - 1,
            tuple(rigid(self.cameras[position]) for position in begins),
            tuple(_median_depth(self.frames[position]) for position in begins),
            is_settled=self.is_settled,
        )

    def moved(self, spans: Spans, moves: list[Similarity]) -> Float64[Tensor, "frames 4 4"]:
        """Its cameras, each span laid anew."""
        return torch.stack(
            [
                moves[bisect.bisect_right(spans.starts, frame) - 1].of_cameras(camera)
                for frame, camera in enumerate(self.cameras)
            ]
        )


def _index_of(frames: list[Geometry]) -> PlaceIndex:
    described = [one for one in frames if one.kind[0] is not FrameKind.PASSING and one.descriptor is not None]
    looks = [one.descriptor[0].float().numpy() for one in described if one.descriptor is not None]
    index = PlaceIndex.empty(len(looks[0]))
    for one, look in zip(described, looks, strict=True):
        index = index.with_keyframe(
            look, frame=one.frame_index[0], window=one.window[0], timestamp_s=one.timestamp_s[0]
        )
    return index


def _median_depth(one: Geometry) -> float:
    depth = one.depth[0].double().numpy()
    usable = depth[np.isfinite(depth) & (depth > 0)]
    return float(np.median(usable)) if usable.size else 1.0
