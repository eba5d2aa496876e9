"""What people type first, with one import of ours."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import longtake

FRONT_DOOR = """
import longtake

take = longtake.map("world:9?frames=60&size=126x98", out="mapped", model="micro-map", memory="10MB")
print(take.trajectory, take.depth(0).shape, take.summary)

session = longtake.GeometrySession.from_pretrained("micro-map", memory="10MB")
for frame in longtake.open_video("world:9?frames=60&size=126x98"):
    geometry = session.step(frame)

chat = longtake.DialogueSession.from_pretrained("micro-vqa", memory="100MB")
chat.see(frame)
print(chat.ask("Have you seen a red ball?").text)

both = longtake.LiveSession.from_pretrained(map="micro-map", ask="micro-vqa", memory="200MB")
both.step(frame); print(both.ask("Where is the red ball now?"))
"""
FIRST_LINES = """
import longtake
import matplotlib.pyplot as plt

take = longtake.map("pictures", out="mapped", picture_fps=10)
print(take, take.summary["frames_per_s"], "frames/s")
x, y, z = take.trajectory.positions.T
plt.plot(x, z)
plt.gca().set_aspect("equal")
plt.savefig("from-above.png")
chat = longtake.DialogueSession.from_pretrained("micro-vqa", memory="100MB")
for frame in longtake.open_video("pictures", picture_fps=10, fps=2):
    chat.see(frame)
answer = chat.ask("Which room are you in now?")
print(answer.text, [(moment.start_s, moment.end_s) for moment in answer.evidence])
"""


def run(program: str, folder: Path) -> str:
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.extra
def test_the_examples_of_the_front_door_run(tmp_path: Path) -> None:
    printed = run(FRONT_DOOR, tmp_path)
    assert "Trajectory(60 poses in 5.9 s, a way of" in printed
    assert "(98, 126)" in printed
    assert (tmp_path / "mapped" / "cloud.ply").exists()


@pytest.mark.extra
def test_the_first_fifteen_lines_need_one_import_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "pictures").mkdir()
    for frame in longtake.open_video("world:9?frames=20&size=126x98"):
        assert frame.image is not None
        Image.fromarray(frame.image).save(tmp_path / "pictures" / f"{frame.index}.png")
    imports = [node for node in ast.walk(ast.parse(FIRST_LINES)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.names[0].name for node in imports] == ["longtake", "matplotlib.pyplot"]
    assert len(FIRST_LINES.strip().splitlines()) <= 15
    assert "Take(mapped: 20 frames of 126x98 in 1.9 s" in run(FIRST_LINES, tmp_path)
    assert (tmp_path / "from-above.png").stat().st_size > 1000
