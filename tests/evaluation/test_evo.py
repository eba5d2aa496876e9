"""Trajectory errors against evo, which runs in an environment of its own, on the sample trajectories it brings.

`make test-extra` fetches both; without them these tests are skipped.
"""

import json
import subprocess
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.association import PosePairs, associate
from longtake.evaluation.relative import Delta, DeltaUnit, relative_error
from longtake.evaluation.statistics import Statistics
from longtake.takes.trajectory import Trajectory
from longtake.takes.trajectory_file import read_trajectory

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-oracles" / "bin" / "python"
DATA = ROOT / ".oracles" / "evo-1.38.1" / "test" / "data"
TOLERANCE = 1e-6
GAP_S = 0.01  # what evo allows
FLOOR = 1e-6  # smaller errors, of first frames mostly, are compared as if they were so large

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(not (PYTHON.exists() and DATA.exists()), reason="evo is not fetched; run: make test-extra"),
]

ASK_EVO = """
import copy, json, sys
from evo.core import metrics, sync
from evo.tools import file_interface

asked = json.load(sys.stdin)
is_timed = len(open(asked["result"]).readlines()[-1].split()) == 8
read = file_interface.read_tum_trajectory_file if is_timed else file_interface.read_kitti_poses_file
truth, result = read(asked["truth"]), read(asked["result"])
if is_timed:
    truth, result = sync.associate_trajectories(truth, result)

moved = {freedom: copy.deepcopy(result) for freedom in ("none", "se3", "sim3")}
moved["se3"].align(truth)
moved["sim3"].align(truth, correct_scale=True)

relations = {
    "translation": metrics.PoseRelation.translation_part,
    "rotation_deg": metrics.PoseRelation.rotation_angle_deg,
}
units = {"frames": metrics.Unit.frames, "metres": metrics.Unit.meters}
answers = []
for question in asked["questions"]:
    relation, delta = relations[question["relation"]], question["delta"]
    metric = metrics.APE(relation) if delta is None else metrics.RPE(
        relation,
        delta["length"],
        units[delta["unit"]],
        all_pairs=delta["all_pairs"],
        pairs_from_reference=not delta["along_result"],
    )
    metric.process_data((truth, moved[question["alignment_mode"]]))
    answers.append({**metric.get_all_statistics(), "num_errors": len(metric.error)})
json.dump(answers, sys.stdout)
"""


@dataclass(frozen=True)
class Sample:
    truth: str
    result: str
    metres: float

    @property
    def is_timed(self) -> bool:
        return not self.truth.startswith("KITTI")


SAMPLES = {
    "fr1/xyz rgbdslam": Sample("freiburg1_xyz-groundtruth.txt", "freiburg1_xyz-rgbdslam.txt", 0.5),
    "fr1/xyz drifting": Sample("freiburg1_xyz-groundtruth.txt", "freiburg1_xyz-rgbdslam_drift.txt", 0.5),
    "fr1/xyz monocular": Sample("freiburg1_xyz-groundtruth.txt", "freiburg1_xyz-ORB_kf_mono.txt", 0.5),
    "fr2/desk orb": Sample("fr2_desk_groundtruth.txt", "fr2_desk_ORB.txt", 1.0),
    "fr2/desk monocular": Sample("fr2_desk_groundtruth.txt", "fr2_desk_ORB_kf_mono.txt", 1.0),
    "kitti 00 orb": Sample("KITTI_00_gt.txt", "KITTI_00_ORB.txt", 50.0),
    "kitti 00 s-ptam": Sample("KITTI_00_gt.txt", "KITTI_00_SPTAM.txt", 50.0),
}


@dataclass(frozen=True)
class Question:
    """A delta asks for the relative error, none for the absolute."""

    alignment_mode: AlignmentMode
    relation: str
    delta: Delta | None = None

    def answer(self, pairs: PosePairs) -> tuple[Statistics, int]:
        if self.delta is None:
            error = absolute_error(pairs, alignment_mode=self.alignment_mode)
            return (error.translation if self.relation == "translation" else error.rotation_deg), len(pairs)
        moved = relative_error(pairs, alignment_mode=self.alignment_mode, delta=self.delta)
        return (moved.translation if self.relation == "translation" else moved.rotation_deg), len(moved.timestamp_s)


def questions_about(sample: Sample) -> list[Question]:
    deltas = [
        Delta(length=length, unit=unit, all_pairs=every, along_result=along)
        for every, (length, unit, along) in product(
            (False, True),
            (
                (1.0, DeltaUnit.FRAMES, False),
                (10.0, DeltaUnit.FRAMES, False),
                (sample.metres, DeltaUnit.METRES, False),
                (sample.metres, DeltaUnit.METRES, True),
            ),
        )
    ]
    return [Question(*asked) for asked in product(AlignmentMode, ("translation", "rotation_deg"), (None, *deltas))]


def ask_evo(truth: Path, result: Path, questions: list[Question], home: Path) -> list[dict[str, float]]:
    asked = {"truth": str(truth), "result": str(result), "questions": [asdict(question) for question in questions]}
    answer = subprocess.run(
        [PYTHON, "-c", ASK_EVO],
        input=json.dumps(asked),
        env={"HOME": str(home), "OMP_NUM_THREADS": "1"},  # evo writes its settings at home
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    answers: list[dict[str, float]] = json.loads(answer.stdout)
    return answers


def check_agreement(pairs: PosePairs, questions: list[Question], answers: list[dict[str, float]]) -> None:
    worst = 0.0
    for question, theirs in zip(questions, answers, strict=True):
        ours, num_errors = question.answer(pairs)
        assert num_errors == theirs["num_errors"], question
        for name, value in asdict(ours).items():
            off = abs(value - theirs[name]) / max(abs(theirs[name]), FLOOR)
            assert off <= TOLERANCE, f"{question}: {name} is {value}, evo says {theirs[name]}"
            worst = max(worst, off)
    print(f"worst relative difference of {6 * len(questions)} numbers from {len(pairs)} poses: {worst:.1e}")


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.is_timed])
def test_timed_trajectories_have_the_errors_that_evo_says(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    truth, result, questions = DATA / sample.truth, DATA / sample.result, questions_about(sample)
    sides = read_trajectory(result), read_trajectory(truth)
    pairs = associate(*sides, max_gap_s=GAP_S).poses_of(*sides)
    check_agreement(pairs, questions, ask_evo(truth, result, questions, tmp_path))


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if not sample.is_timed])
def test_trajectories_without_times_have_the_errors_that_evo_says(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    truth, result = (read_trajectory(DATA / file) for file in (sample.truth, sample.result))
    # KITTI's rotations are rounded. We take the nearest true ones and evo what it is given, so it gets ours.
    written = write_kitti(truth, tmp_path / "truth.txt"), write_kitti(result, tmp_path / "result.txt")
    questions = questions_about(sample)
    check_agreement(associate(result, truth).poses_of(result, truth), questions, ask_evo(*written, questions, tmp_path))


def write_kitti(trajectory: Trajectory, path: Path) -> Path:
    np.savetxt(path, trajectory.world_from_camera[:, :3].flatten(1).numpy())
    return path


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if not sample.is_timed])
def test_published_kitti_files_have_the_absolute_errors_that_evo_says(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    truth, result = DATA / sample.truth, DATA / sample.result
    questions = [Question(alignment_mode, "translation") for alignment_mode in AlignmentMode]
    sides = read_trajectory(result), read_trajectory(truth)
    pairs = associate(*sides, max_gap_s=GAP_S).poses_of(*sides)
    check_agreement(pairs, questions, ask_evo(truth, result, questions, tmp_path))
