"""Where one picture was taken in the world of a take: places that look like it, believed by points against points."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.places.key_view import KeyView
from longtake.places.known_take import KnownTake
from longtake.places.links import Link, known_places
from longtake.places.verification import Verifier
from longtake.places.zoom import focal_ratio
from longtake.runtime.build import SessionSettings, open_session
from longtake.spatial.placement import Placement
from longtake.types import Geometry
from longtake.video.resize import Fit, Preprocessor, Resized

_CANDIDATES = 12
_ALIKE_PIXELS = 1.0
"""By which the edges of two videos may differ in what the network sees of them."""
_TOLD_BY = 3
"""Places by which a picture's focal length is judged."""
_ALIKE_LOG_RATIO, _DEVIATIONS = 0.05, 3.0
"""Up to which a focal length is not said to be another: by itself, and in standard deviations of what points tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Located:
    """A picture's camera in the world of a take, in the unit of that."""

    world_from_camera: Float64[Tensor, "4 4"]
    frame: int
    """Of the take, with which most points agree."""
    confidence: float
    """0 to 1: 0.5 with just as many agreeing points as the network's card asks for, more with more of them, and with
    other frames that put the camera to the same place; less by the share of points in frames that put it elsewhere."""
    num_points: int
    num_frames: int
    """That put it there."""
    position_deviation: float
    rotation_deviation_deg: float
    """Standard deviations by the network's card, along and about each axis."""


@dataclass(frozen=True, slots=True)
class PictureLocator:
    """A take and the network that made it."""

    known: KnownTake
    model: GeometryModel
    settings: SessionSettings
    verifier: Verifier

    def locate(self, image: UInt8[np.ndarray, "height width 3"]) -> Located | None:
        """None where the take does not know the place."""
        resized = self._seen(image)
        geometry = self._looked_at(resized)
        assert geometry.descriptor is not None
        view = KeyView.of(geometry, 0, resized.pixels, self.known.intrinsics)
        descriptors = geometry.descriptor[:1].float().cpu().numpy()
        self._require_zoom(view, descriptors)
        camera = torch.eye(4, dtype=torch.float64)
        links = known_places(self.known, view, camera, descriptors, self.verifier, _CANDIDATES)
        return _located(links, self.verifier.card.least_agreeing)

    def _seen(self, image: UInt8[np.ndarray, "height width 3"]) -> Resized:
        """As the network saw the take's video, which must have been of the same shape."""
        header = self.known.take.header
        if header.source is None:
            raise InputError(
                f"Expected a take in the network's pixels, but {header.width}x{header.height} of "
                f"{self.known.take.folder} are the video's; map the video again with --pixels model."
            )
        for fit in Fit:
            resized = Preprocessor(fit=fit, size=max(header.size), patch=self.model.config.patch, sizes=(header.size,))(
                image
            )
            is_alike = np.abs(_edges(resized.placement) - _edges(header.source)).max() <= _ALIKE_PIXELS
            if tuple(resized.pixels.shape[1:]) == header.size and is_alike:
                return resized
        height, width = image.shape[:2]
        raise InputError(
            f"Expected a picture of the camera of {self.known.take.folder}, in the shape of "
            f"{header.source.source_width}x{header.source.source_height}, but got {width}x{height}; cut it to that "
            "shape, or take one with the same camera."
        )

    def _looked_at(self, resized: Resized) -> Geometry:
        """One picture alone, by a fresh session."""
        session = open_session(self.model, self.settings, self.known.take.header.size)
        geometry = Geometry.join(list(session.run([resized.pixels])))
        session.close()
        return geometry

    def _require_zoom(self, view: KeyView, descriptors: Float[np.ndarray, "frames channels"]) -> None:
        """Refuse a picture whose points fit the places that look most like it through another lens."""
        places = [self.known.view(match.frame) for match in self.known.index.matches(descriptors, _TOLD_BY)]
        found, known = focal_ratio(places, view), float(self.known.intrinsics[0, 0])
        if found is not None and abs(found.log) > max(_ALIKE_LOG_RATIO, _DEVIATIONS * found.deviation):
            raise InputError(
                f"Expected a picture of the camera of {self.known.take.folder}, whose focal length is {known:.0f} "
                f"pixels of the network's, but what both show fits one of about {found.ratio * known:.0f}; take one "
                "with the same camera and zoom."
            )


def _edges(placement: Placement) -> Float[np.ndarray, "4"]:
    """Of the source, among the network's pixels: left, top, right, bottom."""
    return np.array(
        [
            placement.offset_x,
            placement.offset_y,
            placement.offset_x + placement.scale_x * placement.source_width,
            placement.offset_y + placement.scale_y * placement.source_height,
        ]
    )


def _num_points(links: list[Link]) -> int:
    return sum(link.num_agreeing for link in links)


def _located(links: list[Link], least_agreeing: int) -> Located | None:
    """By the link of most points; those that contradict it, as parts of a world that drifted may, leave it in doubt."""
    if not links:
        return None
    best = max(links, key=lambda link: link.num_agreeing)
    witnesses = [link for link in links if link.agrees_with(best)]
    doubt = float(np.prod([least_agreeing / (link.num_agreeing + least_agreeing) for link in witnesses]))
    return Located(
        world_from_camera=best.old_from_new.of_cameras(best.new_camera),
        frame=best.old_frame,
        confidence=(1 - doubt) * _num_points(witnesses) / _num_points(links),
        num_points=best.num_agreeing,
        num_frames=len(witnesses),
        position_deviation=best.noise.translation,
        rotation_deviation_deg=float(np.degrees(best.noise.rotation_rad)),
    )
