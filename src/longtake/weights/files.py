"""Where weights lie: a file, a folder that holds one, or an index that names several."""

import reprlib
from pathlib import Path

from longtake.errors import CheckpointError
from longtake.records import parse_json

SUFFIXES = (".safetensors", ".pt", ".pth")
INDEX = "model.safetensors.index.json"


def existing(text: Path | str) -> Path | None:
    """The path that a user means, where something is there; None for what can be no path."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # a name too long, the home of nobody
        return None


def locate(path: Path) -> Path:
    """The file of weights, or the index of several, that a path stands for."""
    if existing(path) is None:
        raise CheckpointError(f"Expected a file of weights at {path}, but nothing is there; check the path.")
    if path.is_file():
        return path
    if not path.is_dir():
        raise CheckpointError(f"Expected a file of weights at {path}, but it is a pipe or a device; check the path.")
    if (path / INDEX).is_file():
        return path / INDEX
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    raise CheckpointError(
        f"Expected one file of weights ({', '.join(SUFFIXES)}) in the folder {path}, but it holds "
        + (f"{len(found)} ({names}); give the path of one of them." if found else "none; check the path.")
    )


def is_index(path: Path) -> bool:
    return path.name.endswith(".index.json")


def read_index(index: Path) -> dict[str, str]:
    """Which file beside the index holds each tensor."""
    try:
        shards: dict[str, str] = parse_json(index.read_text())["weight_map"]
        places = {str(name): str(file) for name, file in shards.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"Expected an index with a 'weight_map' in {index}, but it cannot be read ({reprlib.repr(error)}); "
            "fetch it again."
        ) from error
    for file in places.values():
        if Path(file).name != file or not file.endswith(SUFFIXES):
            raise CheckpointError(
                f"Expected files of weights beside {index}, but it names {reprlib.repr(file)}; fetch it again."
            )
    return places
