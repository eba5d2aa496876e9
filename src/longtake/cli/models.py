"""`longtake models`: which weights are known, which are on this machine, and whether a file holds what it should."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from longtake.cli.options import AsJson
from longtake.cli.tables import show
from longtake.errors import CheckpointError, MissingExtraError
from longtake.extras import import_from_extra
from longtake.hub.bundled import BUNDLED, Bundled
from longtake.hub.presets import PRESETS, Preset
from longtake.hub.resolve import find


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a file of weights was found to hold."""

    path: str
    model: str
    num_tensors: int
    num_parameters: int
    heads: tuple[str, ...]
    dtypes: tuple[str, ...]
    num_bytes: int


app = typer.Typer(invoke_without_command=True, add_completion=False)


@app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the weights known by name: sizes, where from, their licence, and whether they are on this machine."""
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    rows = [(known, *_found(known)) for known in (*BUNDLED, *PRESETS)]
    record = [asdict(known) | {"found": path, "note": note} for known, path, note in rows]
    show(record, (block for row in rows for block in (_described(*row), "")), as_json=as_json)


def _described(known: Bundled | Preset, path: str | None, note: str) -> Table:
    pairs = {
        "about": known.about,
        "parameters": f"{known.num_parameters:,}",
        "size": _size(known),
        "from": _origin(known),
        "licence": known.licence,
        "found": path or note,
    }
    return _pairs_table(known.name, pairs)


def _size(known: Bundled | Preset) -> str:
    if isinstance(known, Bundled):
        return f"{known.num_bytes / 1e6:.1f} MB in float16"
    return f"{known.num_bytes / 1e9:.2f} GB in float32"


def _origin(known: Bundled | Preset) -> str:
    if isinstance(known, Bundled):
        return f"the package, {known.file}"
    return f"https://huggingface.co/{known.repo}, {known.file}"


def _found(known: Bundled | Preset) -> tuple[str | None, str]:
    """Where weights lie on this machine, or why they cannot be said to."""
    if isinstance(known, Bundled):
        return (str(known.path), "") if known.path.is_file() else (None, "missing; install longtake again")
    try:
        import_from_extra("huggingface_hub", "hub", "Looking into the hub's cache")
    except MissingExtraError as error:
        return None, str(error)
    path = find(known.name)
    return (str(path), "") if path else (None, "not on this machine; it is downloaded when first used")


@app.command("check")
def check(
    name_or_path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, a folder, or a name in the hub's cache.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say what a file of weights holds and check its names and shapes; its values are not read."""
    holdings = _holdings(name_or_path)
    pairs = {
        "model": holdings.model,
        "tensors": f"{holdings.num_tensors:,}",
        "parameters": f"{holdings.num_parameters:,}",
        "heads": ", ".join(holdings.heads),
        "numbers": ", ".join(holdings.dtypes),
        "size": f"{holdings.num_bytes:,} bytes",
    }
    verdict = "\nEvery name and shape is right; values were not read."
    show(asdict(holdings), [_pairs_table(holdings.path, pairs), verdict], as_json=as_json)


def _local(name_or_path: str) -> Path:
    path = find(name_or_path)
    if path is None:
        raise CheckpointError(
            f"Expected weights on this machine, but {name_or_path} is not in the hub's cache; "
            "download it first, or give a path."
        )
    return path


def _holdings(name_or_path: str) -> Holdings:
    from longtake.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(_local(name_or_path))
    is_language = checkpoint.path in [bundled.path for bundled in BUNDLED if bundled.is_language]
    model, heads = _of_language(checkpoint.path) if is_language else _of_geometry(name_or_path, checkpoint.path)
    return Holdings(
        path=str(checkpoint.path),
        model=model,
        num_tensors=len(checkpoint.tensors),
        num_parameters=sum(stored.num_parameters for stored in checkpoint.tensors.values()),
        heads=heads,
        dtypes=tuple(sorted({str(stored.dtype)[6:] for stored in checkpoint.tensors.values()})),
        num_bytes=sum(stored.num_bytes for stored in checkpoint.tensors.values()),
    )


def _of_geometry(name_or_path: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """Which model it is, and its heads; refused if a name or a shape is wrong."""
    from longtake.hub.load import told_config
    from longtake.weights.checkpoint import open_checkpoint
    from longtake.weights.fit import fit_geometry

    fitted = fit_geometry(open_checkpoint(path), told_config(name_or_path))
    dense = fitted.skeleton.config.dense
    heads = {"camera": True, "depth": True, "points": dense.points, "camera points": dense.camera_points}
    return fitted.family.title, tuple(name for name, present in heads.items() if present)


def _of_language(path: Path) -> tuple[str, tuple[str, ...]]:
    """The same, by loading it: the library compares names and shapes as it reads."""
    from longtake.language.load import load_language

    load_language(path.parent)
    return "Qwen2.5-VL", ("words",)


def _pairs_table(title: str, pairs: dict[str, str]) -> Table:
    drawn = Table(
        title=Text(title), title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs.items():
        drawn.add_row(name, Text(value))
    return drawn
