"""A long video in processes whose memory is limited by the system and read by their parent."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

LONGTAKE = str(Path(sys.executable).with_name("longtake"))
LIMIT_BYTES = 700_000_000
"""Private data each of the two processes may ask for; importing torch takes about half of it."""
LARGEST_GROWTH_BYTES = 15_000_000


def resident_over_frames(num_frames: int, out: Path, every: int) -> list[tuple[int, int]]:
    """Frames mapped and bytes resident in all, as the parent reads them while the video runs."""
    source = f"world:5?frames={num_frames}&size=42x28"
    command = [LONGTAKE, "map", "--model", "tiny", source, "--size", "42", "--json", "--out", str(out)]
    options = ["--format", "tum,ply,kitti", "--voxel", "0.2", "--max-points", "5000", "--windows", "64/8"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES)),
    )
    seen = psutil.Process(process.pid)
    readings = []
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "frame" and event["index"] % every == 0:
            both = [seen, *seen.children()]
            readings.append((event["index"], sum(process.memory_info().rss for process in both)))
    process.stdout.close()
    assert process.wait() == 0
    assert json.loads((out / "summary.json").read_text())["num_frames"] == num_frames
    return readings


@pytest.mark.extra
@pytest.mark.skipif(sys.platform != "linux", reason="limits of private data are Linux's")
def test_memory_is_flat_over_a_long_video_under_a_limit(tmp_path: Path) -> None:
    readings = resident_over_frames(2_000, tmp_path / "out", every=100)
    print(readings)
    early = max(resident for index, resident in readings if 300 <= index <= 800)
    late = max(resident for index, resident in readings if index > 800)
    assert late - early < LARGEST_GROWTH_BYTES
