"""`longtake eval` as a user meets it: figures, JSON, plots, and one line for whatever is wrong."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import longtake.cli.progress as progress
from longtake.cli.main import main
from longtake.takes.take import read_take


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def longtake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, which is quicker than one of its own."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["longtake", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short walk through a house, with questions, and answers all of which say no."""
    folder = tmp_path_factory.mktemp("walks") / "walk"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", f"longtake world --seed 9 --frames 12 --size 56x42 --out {folder}".split())
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    questions = json.loads((folder / "questions.json").read_text())
    answers = [{"question": asked["text"], "frame": asked["frame"], "answer": "no"} for asked in questions]
    (folder / "answers.json").write_text(json.dumps(answers))
    return folder


def write_tum(path: Path, rows: list[list[float]]) -> Path:
    path.write_text("# timestamp x y z qx qy qz qw\n" + "".join(f"{' '.join(map(str, row))}\n" for row in rows))
    return path


def spiral(num_poses: int, *, fps: float = 10.0, start_s: float = 0.0) -> list[list[float]]:
    turns = [0.3 * 10 * index / fps for index in range(num_poses)]
    return [
        [start_s + index / fps, math.cos(turn), 0.1 * turn, math.sin(turn), 0, math.sin(turn), 0, math.cos(turn)]
        for index, turn in enumerate(turns)
    ]


def test_take_against_itself_prints_every_part(longtake: Run, walk: Path, tmp_path: Path) -> None:
    done = longtake("eval", walk, walk, "--plots", tmp_path / "plots")
    assert done.code == 0, done.err
    assert "12 of 12 poses matched with the truth's 12, 0.00 to 1.10 s, on a path of" in done.out
    for words in ("trajectory, align sim3, scale 1.0000", "ATE, m", "RPE over 1 frame, deg", "1.000 at 30°", "metric"):
        assert words in done.out
    assert "F1 1.000" in done.out
    assert "answers, with intervals of 95 % confidence" in done.out
    assert "not measured" not in done.out
    assert max(map(len, done.out.splitlines()[3:-1])) <= 100
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["error.png", "trajectory.png"]


def test_where_there_is_no_terminal_a_line_says_how_far_it_is(
    longtake: Run, walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    done = longtake("eval", walk, walk, "--json")
    told = [line.partition(",")[0] for line in done.err.splitlines()]
    assert told == [f"measuring {part}: {step} of 24" for part in ("depth", "points") for step in range(1, 25)]
    assert json.loads(done.out)["depth"] is not None


def test_json_is_strict_and_holds_known_errors(longtake: Run, tmp_path: Path) -> None:
    truth = write_tum(tmp_path / "truth.tum", spiral(20))
    doubled = [[row[0] + 0.004, *(2 * place + 1 for place in row[1:4]), *row[4:]] for row in spiral(20)]
    result = write_tum(tmp_path / "result.tum", doubled)

    def rmse(*options: str) -> float:
        done = longtake("eval", result, truth, "--json", *options)
        assert done.code == 0, done.err
        record = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert record["compared"]["num_matched"] == 20
        assert set(record["not_measured"]) == {"depth", "points", "answers"}
        return float(record["trajectory"]["ate"]["translation"]["rmse"])

    assert rmse() < 1e-12
    assert rmse("--align", "se3") > 0.5
    places = np.array(doubled)[:, 1:4] - np.array(spiral(20))[:, 1:4]
    assert rmse("--align", "none") == pytest.approx(np.sqrt((places**2).sum(axis=1).mean()))


def test_frame_rates_that_differ_are_compared_where_they_meet(longtake: Run, tmp_path: Path) -> None:
    truth = write_tum(tmp_path / "truth.tum", spiral(60, fps=30.0))
    slow = write_tum(tmp_path / "slow.tum", spiral(20))
    done = longtake("eval", slow, truth)
    assert "20 of 20 poses matched with the truth's 60" in done.out
    assert "note:" not in done.out
    other = write_tum(tmp_path / "other.tum", spiral(50, fps=25.0))
    done = longtake("eval", other, truth, "--max-gap", "0.005")
    assert "note: Only 10 of the result's 50 poses were matched" in done.out
    assert done.code == 0


def test_any_delta_and_offset_can_be_asked_for(longtake: Run, tmp_path: Path) -> None:
    truth = write_tum(tmp_path / "truth.tum", spiral(20))
    late = write_tum(tmp_path / "late.tum", spiral(20, start_s=5.0))
    # 19 steps of 0.3004 m.
    for delta, options, num_pairs in (("10f", (), 1), ("10f", ("--all-pairs",), 10), ("0.6m", (), 9)):
        done = longtake("eval", late, truth, "--offset", "-5", "--json", "--delta", delta, *options)
        assert done.code == 0, done.err
        assert json.loads(done.out)["trajectory"]["rpe"]["num_pairs"] == num_pairs
    done = longtake("eval", late, truth, "--offset", "-5", "--delta", ".6m", "--all-pairs")
    assert "RPE over 0.6 metres, deg" in done.out


def test_kitti_files_take_times_or_a_frame_rate(longtake: Run, walk: Path, tmp_path: Path) -> None:
    poses = read_take(walk).trajectory.world_from_camera[::2, :3].flatten(1).numpy()
    np.savetxt(tmp_path / "kitti.txt", poses)
    np.savetxt(tmp_path / "times.txt", [0.2 * index for index in range(6)])
    for options in (("--fps", "5"), ("--times", tmp_path / "times.txt")):
        done = longtake("eval", tmp_path / "kitti.txt", walk, *options)
        assert "6 of 6 poses matched with the truth's 12, 0.00 to 1.00 s" in done.out, done.err


def test_only_answers_needs_nothing_but_answers(longtake: Run, walk: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_bytes((walk / "answers.json").read_bytes())
    done = longtake("eval", tmp_path, walk, "--only", "answers", "--json")
    assert done.code == 0, done.err
    questions = json.loads((walk / "questions.json").read_text())
    num_right = sum(asked["answer"] == "no" for asked in questions)
    answers = json.loads(done.out)["answers"]
    assert answers["total"]["right"]["hits"] == num_right
    assert answers["total"]["right"]["total"] == len(questions)
    assert set(answers["by_kind"]) == {asked["kind"] for asked in questions}


def bad_files(folder: Path) -> dict[str, Path]:
    poses = spiral(20)
    texts = {
        "nan": [*poses[:3], [0.3, math.nan, *poses[3][2:]], *poses[4:]],
        "late": spiral(20, start_s=100.0),
        "single": poses[:1],
        "pair": poses[:2],
        "seven": [row[:7] for row in poses],
        "ragged": [*poses[:5], poses[5][:6], *poses[6:]],
        "backwards": poses[::-1],
        "kitti": [[1, 0, 0, float(index), 0, 1, 0, 0, 0, 0, 1, 0] for index in range(20)],
        "short_kitti": [[1, 0, 0, float(index), 0, 1, 0, 0, 0, 0, 1, 0] for index in range(7)],
        "empty": [],
    }
    files = {name: write_tum(folder / f"{name}.txt", rows) for name, rows in texts.items()}
    files["binary"] = folder / "binary.txt"
    files["binary"].write_bytes(bytes(range(256)))
    return files | {"nowhere": folder / "nowhere.txt", "folder": folder}


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ("late", "but no pair of poses is at most 0.02 s apart"),
        ("single", "but only 1 pair of poses is"),
        ("pair", "Alignment with scale needs 3 matched poses at least"),
        ("nan", "nan.txt, line 5: expected finite numbers"),
        ("seven", "seven.txt, line 2: expected 8 numbers of a TUM pose or 12 of a KITTI pose, but found 7 numbers"),
        ("ragged", "ragged.txt, line 7: expected 8 numbers"),
        ("backwards", "backwards.txt, line 3: timestamps must increase"),
        ("short_kitti", "has 7 poses and the truth 20, and without timestamps for both"),
        ("empty", "empty.txt holds no numbers"),
        ("binary", "binary.txt, but it is no text file in UTF-8"),
        ("nowhere", "There is no file"),
        ("folder", "take.json cannot be read"),
    ],
)
def test_bad_trajectory_is_one_line(longtake: Run, tmp_path: Path, result: str, sentence: str) -> None:
    truth = write_tum(tmp_path / "truth.tum", spiral(20))
    require_one_line(longtake("eval", bad_files(tmp_path)[result], truth), sentence)
    if result not in ("late", "single", "pair", "short_kitti"):
        require_one_line(longtake("eval", truth, bad_files(tmp_path)[result]), sentence)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--align rigid", "There is no alignment 'rigid'; choose one of sim3, se3, none."),
        ("--delta 10", "Expected a delta such as 10f (frames) or 0.5m (metres), but got '10'."),
        ("--delta 1.5f", "A distance in frames must be a whole number"),
        ("--delta 0m", "must be positive, but 0 came"),
        ("--delta 500f", "No two of 20 matched poses"),
        ("--max-gap -1", "must be zero or more seconds"),
        ("--max-gap nan", "must be zero or more seconds"),
        ("--offset inf", "time offset must be a finite number"),
        ("--threshold 0", "points count as met must be positive"),
        ("--depth-align affine", "There is no depth alignment 'affine'; choose one of metric, scale, scale-shift."),
        ("--depth-span all", "There is no span of a depth alignment 'all'; choose one of sequence, frame."),
        ("--only poses", "There is no part 'poses'; choose one of trajectory, depth, points, answers."),
        ("--only depth", "is a trajectory alone; name a take's folder"),
        ("--only trajectory,points", "is a trajectory alone; name a take's folder"),
        ("--only answers", "has no questions in questions.json"),
        ("--fps 10", "have timestamps of their own"),
        ("--fps 10 --times truth.tum", "either a file of timestamps or a frame rate"),
    ],
)
def test_bad_option_is_one_line(longtake: Run, tmp_path: Path, options: str, sentence: str) -> None:
    truth = write_tum(tmp_path / "truth.tum", spiral(20))
    of_data = ("No two of 20 matched poses", "is a trajectory alone; name a take's folder", "has no questions in")
    code = 1 if sentence.startswith(of_data) else 2
    require_one_line(longtake("eval", truth, truth, *options.split()), sentence, code=code)


def test_depth_that_cannot_be_had_is_a_line_of_the_report_or_of_stderr(
    longtake: Run, walk: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("take.json", "frames.jsonl", "poses.tum"):
        (empty / name).write_bytes((walk / name).read_bytes())
    done = longtake("eval", empty, walk)
    assert done.code == 0
    assert "depth, points not measured: Expected " in done.out
    assert "000000.png, which the take lists, but it is missing" in done.out
    require_one_line(longtake("eval", empty, walk, "--only", "depth"), "which the take lists, but it is missing")


def test_plots_that_cannot_be_drawn_are_one_line(
    longtake: Run, walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = longtake("eval", walk, walk, "--only", "answers", "--plots", tmp_path / "plots")
    require_one_line(done, "pictures of trajectories and of depth", code=2)
    done = longtake("eval", walk, walk, "--only", "trajectory", "--plots", walk / "take.json")
    require_one_line(done, "Plots cannot be written to")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = longtake("eval", walk, walk, "--plots", tmp_path / "plots")
    require_one_line(done, 'run: pip install "longtake[plot]"')


def require_one_line(done: Done, sentence: str, *, code: int = 1) -> None:
    assert done.code == code, done.out
    assert done.out == ""
    [line] = done.err.splitlines()
    assert line.startswith("longtake: ")
    assert sentence in line
