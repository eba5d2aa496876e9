"""Light and air beyond lamps: sun and sky on surfaces, haze before them, and the sky itself."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.world.patterns import sample_noise
from longtake.world.ray_casting import Rays

_CLOUD_TEXELS = 36.0
"""Texels of the noise across the sky at 45 degrees."""

PerRayColour = Float[Tensor, "views rays 3"]


@dataclass(frozen=True, slots=True)
class Daylight:
    """The surroundings of each view, in the order of `content.Surroundings`, ready to be spread over rays."""

    zenith: Float[Tensor, "views 1 3"]
    horizon: Float[Tensor, "views 1 3"]
    clouds: Float[Tensor, "views 1 1"]
    to_sun: Float[Tensor, "views 1 3"]
    sun: Float[Tensor, "views 1 3"]
    ambient: Float[Tensor, "views 1 3"]
    haze: Float[Tensor, "views 1 3"]
    haze_density: Float[Tensor, "views 1 1"]
    exposure: Float[Tensor, "views 1 1"]

    @classmethod
    def of(cls, surroundings: Float[Tensor, "views settings"]) -> "Daylight":
        return cls(*surroundings[:, None, 2:].split([3, 3, 1, 3, 3, 3, 3, 1, 1], dim=-1))

    def on(self, normal: PerRayColour) -> PerRayColour:
        """Light that falls on surfaces which face this way."""
        facing = (normal * self.to_sun).sum(dim=-1, keepdim=True).clamp_min(0)
        return self.sun * facing + self.ambient * (0.68 - 0.32 * normal[..., 1:2])

    def seen(
        self, colour: PerRayColour, rays: Rays, depth: Float[Tensor, "views rays"], noise: Float[Tensor, "texels 3"]
    ) -> PerRayColour:
        """Surfaces through the air, sky where there are none, as bright as the camera is exposed."""
        length = rays.direction.square().sum(dim=-1, keepdim=True).sqrt()
        is_sky: Bool[Tensor, "views rays 1"] = depth.isinf()[..., None]
        clear = (-self.haze_density * torch.where(is_sky, 0.0, depth[..., None]) * length).exp()
        through_air = self.haze + clear * (colour - self.haze)
        return self.exposure * torch.where(is_sky, self._sky(rays.direction / length, noise), through_air)

    def _sky(self, direction: PerRayColour, noise: Float[Tensor, "texels 3"]) -> PerRayColour:
        """From horizon to zenith, with soft clouds that thin out towards the horizon, and a glow about the sun."""
        up = -direction[..., 1:2]
        blue = self.horizon + (self.zenith - self.horizon) * up.abs().sqrt()
        scale = _CLOUD_TEXELS / (up.abs() + 0.15)
        u, v = (direction[..., axis, None] * scale for axis in (0, 2))
        bands = sample_noise(noise, u[..., 0], v[..., 0])
        thick = (0.5 * bands[..., 2:3] + 0.12 * bands[..., 1:2] + 2 * self.clouds - 0.8).clamp(0, 1)
        white = (self.horizon + 0.55).clamp_max(1)
        cloudy = blue + (white - blue) * thick * self.clouds.sqrt() * (4 * up.abs()).clamp_max(1)
        glow = ((direction * self.to_sun).sum(dim=-1, keepdim=True).clamp_min(0)) ** 32
        return cloudy + 0.35 * glow * self.sun
