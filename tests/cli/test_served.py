"""`longtake map` and `longtake ask` with the network on a server: the same poses and answers as without."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from done import Done
from PIL import Image
from server_process import ServerProcess

import longtake
from longtake.cli.served_results import parse_formats, require_place
from longtake.errors import InputError, SettingError

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

TOKEN = "a-token-of-some-length"
WALK = "world:9?frames=20&size=126x98"
SEEN = "world:9?frames=12&size=168x112&fps=2"
ROOM, BALL, DRAGON = "Which room are you in now?", "Have you seen a red ball?", "Is there a dragon?"
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served") / "sessions"
    with ServerProcess(folder, environment={"LONGTAKE_TOKEN": TOKEN}) as started:
        yield started


def poses(done: Done) -> list[tuple[object, ...]]:
    names = ("index", "time_s", "world_from_camera", "provisional", "keyframe", "window")
    return [tuple(frame[name] for name in names) for frame in done.of("frame")]


def test_a_map_on_a_server_has_the_poses_of_one_made_here(run_here: Run, server: ServerProcess, tmp_path: Path) -> None:
    arguments = ("map", WALK, "--memory", "10MB", "--json", "--format", "tum", "--out")
    here = run_here(*arguments, str(tmp_path / "here"))
    there = run_here(*arguments, str(tmp_path / "there"), "--server", server.url, "--token", TOKEN)
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert len(poses(here)) == 20
    assert poses(there) == poses(here)
    (begun,), (done,) = there.of("start"), there.of("done")
    assert (begun["model"], begun["server"], begun["num_frames"]) == ("micro-map", server.url, 20)
    assert (done["num_frames"], done["is_complete"], done["out"]) == (20, True, str(tmp_path / "there"))
    lines = [line for line in (tmp_path / "there" / "poses.tum").read_text().splitlines() if line[0] != "#"]
    assert len(lines) == 20
    assert longtake.Client(server.url, token=TOKEN).sessions() == []
    assert "holds something" in run_here(*arguments, str(tmp_path / "there"), "--server", server.url).stderr


def test_a_take_and_its_exports_come_from_the_server(
    run_here: Run, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTAKE_TOKEN", TOKEN)
    out = tmp_path / "there"
    formats = ("--format", "tum,depth,confidence,images,ply,colmap")
    done = run_here("map", WALK, "--memory", "10MB", "--out", str(out), *formats, "--server", server.url)
    assert done.returncode == 0, done.stderr
    assert len(longtake.open_take(out).trajectory) == 20
    assert (out / "cloud.ply").read_bytes().startswith(b"ply")
    assert any((out / "colmap").rglob("images.*"))


def test_answers_of_a_server_are_those_given_here(
    run_here: Run, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTAKE_TOKEN", TOKEN)
    arguments = ("ask", SEEN, ROOM, BALL, "--at", "00:02", "--every", "2s", "How many balls have you seen?")
    memory = ("--memory", "40MB")
    here, there = run_here(*arguments, *memory), run_here(*arguments, *memory, "--server", server.url)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert f"micro-vqa on {server.url}" in there.stderr
    here, there = run_here("ask", SEEN, DRAGON), run_here("ask", SEEN, DRAGON, "--server", server.url)
    assert there.stdout == here.stdout
    refused = run_here("ask", SEEN, DRAGON, "--server", server.url, "--json")
    assert refused.returncode == 3
    assert refused.of("answer")[0]["ending"] == "refused"
    assert json.loads(refused.stdout.splitlines()[-1])["event"] == "done"


def test_a_video_that_is_unlike_what_the_models_know_is_told_as_without_a_server(
    run_here: Run, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTAKE_TOKEN", TOKEN)
    pictures = tmp_path / "noise"
    pictures.mkdir()
    rng = np.random.default_rng(2)
    for number in range(12):
        Image.fromarray(rng.integers(0, 256, (98, 126, 3), dtype=np.uint8)).save(pictures / f"{number:02d}.png")
    for arguments in (("map", str(pictures), "--format", "tum"), ("ask", str(pictures), ROOM)):
        places = [("--out", str(tmp_path / name)) if arguments[0] == "map" else () for name in ("here", "there")]
        here = run_here(*arguments, *places[0], "--memory", "20MB", "--json")
        there = run_here(*arguments, *places[1], "--memory", "20MB", "--json", "--server", server.url)
        told = [[note["text"].partition(", its ")[0] for note in done.of("note")][1:] for done in (here, there)]
        assert told[1] == told[0], there.stderr
        assert [" this video is unlike them (" in note for note in told[1]] == [True]


def test_a_server_without_the_token_is_refused_in_its_sentence(run_here: Run, server: ServerProcess) -> None:
    done = run_here("ask", SEEN, ROOM, "--server", server.url)
    assert done.returncode != 0
    assert "Expected the token of this server" in done.stderr
    assert "--token or LONGTAKE_TOKEN" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("map", WALK, "--policy", "window"),
        ("map", WALK, "--keyframes", "every:2"),
        ("map", WALK, "--resume"),
        ("map", WALK, "--device", "cpu"),
        ("map", WALK, "--when-full", "block"),
        ("ask", SEEN, ROOM, "--choices", "yes,no"),
        ("ask", SEEN, "--when", f"{BALL}=yes"),
        ("ask", SEEN, ROOM, "--chunk", "2"),
        ("ask", SEEN, ROOM, "--backend", "reference"),
    ],
)
def test_options_that_mean_nothing_to_a_server_are_refused(run_here: Run, arguments: tuple[str, ...]) -> None:
    done = run_here(*arguments, "--server", "http://127.0.0.1:1")
    option = next(word for word in reversed(arguments) if word.startswith("--"))
    assert done.returncode != 0
    assert f"{option} has no meaning with --server" in done.stderr.replace("\n", " ")


def test_a_token_means_nothing_without_a_server(run_here: Run) -> None:
    assert "--token has no meaning without --server" in run_here("ask", SEEN, ROOM, "--token", "x").stderr


def test_formats_and_folders_are_checked_before_a_frame_is_sent(tmp_path: Path) -> None:
    assert parse_formats("tum,glb,tum") == ("tum", "glb")
    with pytest.raises(SettingError, match="but got 'session'"):
        parse_formats("tum,session")
    (tmp_path / "mine.txt").touch()
    for overwrite in (False, True):
        with pytest.raises(InputError, match="holds something"):
            require_place(tmp_path, overwrite=overwrite)
    (tmp_path / "poses.tum").touch()
    require_place(tmp_path, overwrite=True)
    require_place(tmp_path / "new", overwrite=False)
