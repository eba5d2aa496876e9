"""Options that several commands share, declared once; nothing here needs torch."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from longtake.errors import SettingError

Value = TypeVar("Value")
TOKEN_VARIABLE = "LONGTAKE_TOKEN"  # noqa: S105 - the name of a variable
"""Of a server, for those who start it and those who speak to it."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JsonEvents = Annotated[bool, typer.Option("--json", help="Print a JSON object for each event.")]
Overwrite = Annotated[bool, typer.Option(help="Replace what is in the folder.")]

SourceText = Annotated[str, typer.Argument(help="A video, image folder, take, camera:0, rtsp://…, or world:7.")]
Start = Annotated[str | None, typer.Option(help="Where to begin, such as 00:42.")]
End = Annotated[str | None, typer.Option(help="Where to end.")]
Fps = Annotated[float | None, typer.Option(help="At most so many frames a second, by their times.")]
PictureFps = Annotated[
    float | None,
    typer.Option(help="Frames a second of a folder, whose pictures have no times; by default as --fps, or else 30."),
]
AskedPictureFps = Annotated[
    float | None,
    typer.Option(help="Frames a second of a folder, whose pictures have no times; by default all are looked at."),
]

Size = Annotated[str, typer.Option(help="Width x height of the images, in pixels.")]
Sizes = Annotated[str, typer.Option(help="Width x height of the images; several separated by commas.")]
Families = Annotated[
    str, typer.Option(help="Families of worlds, with commas, or all: the one never trained on comes first.")
]
Loops = Annotated[
    bool,
    typer.Option(
        "--loops/--no-loops",
        help="Know places again and move what was said; by default where the model has a card of loops.",
    ),
]
Processes = Annotated[int, typer.Option(min=1, help="Worlds are shared out among so many, of one thread each.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
PrecisionName = Annotated[str, typer.Option("--precision", help="fp32 (exact), bf16, fp16, or auto: fast on a GPU.")]
BackendName = Annotated[str, typer.Option("--backend", help="Attention backend, or auto: the fastest installed.")]

At = Annotated[
    list[str] | None, typer.Option(help="When to ask, such as 00:42: once a question, in order; else at the end.")
]
EverySoOften = Annotated[list[str] | None, typer.Option(metavar='10s "QUESTION"', help="Ask this again and again.")]
Standing = Annotated[
    list[str] | None,
    typer.Option(metavar='"QUESTION=yes"', help="Ask at each look, and tell when the answer becomes this."),
]
LANGUAGE_HELP = "Folder of a Qwen2.5-VL model, or its name in the package or on the Hugging Face hub."
LanguageName = Annotated[str, typer.Option(help=LANGUAGE_HELP)]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest answer.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest word.")]

DropPercent = Annotated[float, typer.Option(help="Least confident pixels that give no points.")]
Mask = Annotated[Path | None, typer.Option(help="Folder of masks: white gives points, black does not.")]
Sky = Annotated[Path | None, typer.Option(help="ONNX model that finds sky, which gives no points.")]
Voxel = Annotated[float | None, typer.Option(help="One point a voxel of this edge, in the unit of the files.")]
MaxPoints = Annotated[int, typer.Option(min=1, help="Voxels widen until no more points are left.")]
Intrinsics = Annotated[
    str | None,
    typer.Option(help="The camera: fx,fy,cx,cy in the video's pixels, cameras.txt, cameras.bin, transforms.json."),
]
FixedCamera = Annotated[bool, typer.Option("--fixed-camera", help="One camera, the median of all frames'.")]
ScaleFrom = Annotated[
    str | None, typer.Option(help="distance:0,57=2.4m, height:1.5m or depth:12=depth.png@0.001 makes it metric.")
]
Up = Annotated[str, typer.Option(help="auto turns the floor level and to y = 0; none leaves the world.")]

ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server", help="Send frames to a longtake serve, as http://127.0.0.1:8765, whose models watch them."
    ),
]
ServerToken = Annotated[str | None, typer.Option("--token", help="The server's; or say it as LONGTAKE_TOKEN.")]
ServerCertificate = Annotated[
    Path | None, typer.Option("--certificate", help="Of a server that made its own, the file that it printed.")
]


def command_app() -> typer.Typer:
    """What a module declares its command, or commands, on."""
    return typer.Typer(add_completion=False)


def processes_on(device_type: str, processes: int) -> int:
    """How many there are: one where a GPU does the work, which is said."""
    if processes == 1 or device_type == "cpu":
        return processes
    typer.echo("Worlds are counted by one process, for a GPU is not shared; --processes is for a CPU.", err=True)
    return 1


def parse_size(text: str) -> tuple[int, int]:
    """Height and width from `WIDTHxHEIGHT`."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise SettingError(f"Expected a size such as 518x378, width by height, but got '{text}'.")
    return int(match[2]), int(match[1])


def parse_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Heights and widths from `WIDTHxHEIGHT` between commas, each once."""
    return tuple(map(parse_size, split_names(text)))


def parse_counts(text: str, what: str) -> tuple[int, ...]:
    """Numbers from 1 on between commas, each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise SettingError(f"Expected {what}, but got '{text}'.")
    return tuple(dict.fromkeys(map(int, parts)))


def split_names(text: str) -> tuple[str, ...]:
    """Names between commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def choose(name: str, known: Mapping[str, Value], kind: str) -> Value:
    """What goes by this name."""
    if name not in known:
        raise SettingError(f"There is no {kind} '{name}'; choose one of {', '.join(known)}.")
    return known[name]
