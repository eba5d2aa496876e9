"""Skies: from noon to evening, clear or grey, with the sun, the light and the haze that belong to them."""

import numpy as np

from longtake.world.content import Surroundings
from longtake.world.furniture import triple


def random_sky(rng: np.random.Generator, reach: float) -> Surroundings:
    """A sky over ground that reaches this far."""
    height, bearing = float(rng.uniform(0.15, 1.4)), float(rng.uniform(0, 2 * np.pi))
    evening = max(0.0, 1 - height / 0.6)
    grey = float(rng.choice([0.0, rng.uniform(0.3, 1)]))
    bright = float(rng.uniform(0.7, 1.0))
    blue = np.array([0.25, 0.47, 0.85]) * (1 - 0.35 * evening)
    zenith = bright * (blue * (1 - grey) + 0.62 * grey)
    horizon = bright * (np.array([0.72, 0.82, 0.95]) * (1 - evening) + np.array([0.95, 0.68, 0.45]) * evening)
    horizon = horizon * (1 - grey) + 0.75 * bright * grey
    sun = (1 - 0.85 * grey) * (np.array([1.0, 0.95, 0.85]) * (1 - evening) + np.array([1.0, 0.6, 0.3]) * evening)
    ambient = 0.42 * (zenith + horizon) * (0.8 + 0.5 * grey)
    return Surroundings(
        reach=reach,
        zenith=triple(zenith),
        horizon=triple(horizon),
        clouds=float(rng.choice([0.0, rng.uniform(0.2, 0.8)], p=[0.3, 0.7])),
        to_sun=triple(np.array([np.cos(height) * np.sin(bearing), -np.sin(height), np.cos(height) * np.cos(bearing)])),
        sun=triple(0.85 * sun),
        ambient=triple(ambient),
        haze=triple(horizon),
        haze_density=float(rng.choice([0.3, rng.uniform(0.5, 4)])) / reach,
        exposure=float(rng.uniform(0.9, 1.4)),
    )
