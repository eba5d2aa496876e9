"""Clips as other cameras would have taken them: colours, softness, exposure, grey pictures and files of less quality.

Worlds are drawn with one ray a pixel, in colour and without loss; video that was filmed and decoded is not.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from longtake.world.camera_effects import jpeg_compressed, with_drifting_exposure

Pictures = Float[Tensor, "clips frames 3 height width"]

_SOFT, _DRIFTING, _GREY = 0.3, 0.2, 0.1
"""Shares of clips."""
_COMPRESSED = 0.15
"""Share of steps: all clips of one, since it takes longer than the rest."""
_MOST_STOPS = 0.5
_QUALITIES = (30.0, 95.0)
_LUMINANCE = (0.299, 0.587, 0.114)


def through_cameras(image: Pictures, rng: np.random.Generator) -> Pictures:
    """Each clip by a camera of its own; `rng` says whether files lose quality, torch's draws the rest."""
    seen = recoloured(_greyed(_exposed(_softened(image))))
    if rng.random() >= _COMPRESSED:
        return seen
    return jpeg_compressed(seen, torch.empty(len(image), device=image.device).uniform_(*_QUALITIES))


def recoloured(image: Pictures, strength: float = 1.0) -> Pictures:
    """As another camera would have taken it: each clip with its own light, contrast and tint, each frame with noise."""
    clips, device = len(image), image.device
    light = torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(-0.3, 0.3).mul(strength).exp()
    contrast = 1 + strength * torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(-0.25, 0.25)
    tint = torch.empty(clips, 1, 3, 1, 1, device=device).uniform_(-0.1, 0.1).mul(strength).exp()
    noise = strength * torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(0, 0.03)
    mean = image.mean(dim=(1, 2, 3, 4), keepdim=True)
    changed = ((image - mean) * contrast + mean) * light * tint
    return (changed + noise * torch.randn_like(image)).clamp(0, 1)


def _softened(image: Pictures) -> Pictures:
    """Neighbours run into each other, as where a larger picture was made smaller."""
    share = torch.rand(len(image), device=image.device) * _chosen(image, _SOFT)
    weights = torch.tensor([0.25, 0.5, 0.25], device=image.device)
    kernel = (weights[:, None] * weights).expand(3, 1, 3, 3)
    around = functional.pad(image.flatten(0, 1), (1, 1, 1, 1), mode="replicate")
    soft = functional.conv2d(around, kernel, groups=3).view_as(image)
    return torch.lerp(image, soft, _spread(share))


def _exposed(image: Pictures) -> Pictures:
    stops = torch.rand(len(image), device=image.device) * _MOST_STOPS * _chosen(image, _DRIFTING)
    return with_drifting_exposure(image, stops=stops)


def _greyed(image: Pictures) -> Pictures:
    luminance = torch.tensor(_LUMINANCE, device=image.device)[:, None, None]
    grey = (image * luminance).sum(dim=2, keepdim=True).expand_as(image)
    return torch.where(_spread(_chosen(image, _GREY)), grey, image)


def _chosen(image: Pictures, share: float) -> Bool[Tensor, " clips"]:
    return torch.rand(len(image), device=image.device) < share


def _spread(value: Tensor) -> Tensor:
    return value[:, None, None, None, None]
