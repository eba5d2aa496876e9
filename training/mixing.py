"""One model between two, of which one began with the weights of the other: it may be better than both."""

from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry, save_geometry


def mix(before: Path, after: Path, share: float, out: Path) -> None:
    """Write weights of which this share is the later model's; which sizes of pictures it knows is said as there."""
    if not 0 <= share <= 1:
        raise SettingError(f"Expected a share from 0 to 1 of the later model, but got {share}.")
    old, new = load_geometry(before), load_geometry(after)
    if old.config != new.config:
        raise InputError(f"The models in {before} and {after} are two networks, and nothing lies between them.")
    mixed = GeometryModel(new.config)
    earlier = old.state_dict()
    mixed.load_state_dict(
        {name: share * value + (1 - share) * earlier[name] for name, value in new.state_dict().items()}
    )
    save_geometry(mixed.half(), out)
