"""The commands that count over many worlds run with torch alone: nothing that reads videos or pictures, or draws."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REFUSING = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("av", "huggingface_hub", "matplotlib", "PIL", "psutil", "scipy", "transformers"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
"""
"""Read by every process that begins with it on its path."""
ROOT = Path(__file__).parents[2]
COMMANDS = {
    "bench-quality": "--model tiny --worlds 2 --frames 4 --size 42x28",
    "bench-places": "--model tiny --places 2 --way 300 --size 42x28",
    "unlikeness": "--worlds 1",
    "loop-pairs": "--worlds 1 --places 1 --way 300",
}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In this process and those that it begins, nothing of the kind can be loaded."""
    (folder / "sitecustomize.py").write_text(REFUSING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT / "src", ROOT)))}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


def test_what_reads_pictures_is_refused_here(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", "import longtake.video.resize")
    assert "ModuleNotFoundError: PIL" in done.stderr


@pytest.mark.extra
@pytest.mark.parametrize("name", COMMANDS)
def test_command_counts_in_two_processes_without_what_reads_pictures(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "benchmarks.place_commands", name, *COMMANDS[name].split(), "--processes", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.extra
def test_familiarity_is_learnt_without_what_reads_pictures(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    save = "from longtake.hub.load import load_model; from longtake.weights.load import save_geometry; import sys; "
    assert run(tmp_path, "-c", save + "save_geometry(load_model('tiny'), sys.argv[1])", str(weights)).returncode == 0
    options = ("--worlds", "2", "--houses", "20", "--processes", "2")
    done = run(tmp_path, "-m", "benchmarks.place_commands", "familiarity", str(weights), *options)
    assert done.returncode == 0, done.stderr
    assert "limit" in done.stdout


def test_every_command_is_offered_without_what_reads_pictures(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "benchmarks.place_commands", "--help")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in (*COMMANDS, "familiarity"))
