"""What opening a source loads: PyAV only where video is decoded."""

import subprocess
import sys
from pathlib import Path

from PIL import Image


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_reader_or_a_take_loads_no_pyav() -> None:
    rooms = ("video.source", "takes.take", "takes.writer", "pipeline.video_map")
    assert "av" not in loaded_by("\n".join(f"import longtake.{room}" for room in rooms))


def test_pictures_are_read_without_pyav_and_worlds(tmp_path: Path) -> None:
    Image.new("RGB", (8, 6)).save(tmp_path / "0.png")
    loaded = loaded_by(
        f"from longtake.video.source import open_source\nassert len(list(open_source({str(tmp_path)!r}).frames())) == 1"
    )
    assert not {"av", "longtake.world.render"} & loaded
