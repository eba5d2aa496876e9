"""Reports as JSON: strict, with keys that are documented and always there."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.evaluation.report import evaluate
from longtake.evaluation.report_json import report_json
from longtake.evaluation.settings import EvalSettings, Part

Film = Callable[..., Path]
DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"
PARTS = {"compared", "trajectory", "depth", "points", "answers"}


def keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield key
            yield from keys_in(entry)


def ask_and_answer(truth: Path, result: Path) -> None:
    asked = {"kind": "seen", "text": "?", "answer": "yes", "choices": ["yes", "no"], "frame": 3, "evidence": [1]}
    (truth / "questions.json").write_text(json.dumps([asked]))
    (result / "answers.json").write_text(json.dumps([{"question": "?", "frame": 3, "answer": "yes", "span": [0, 2]}]))


def test_every_key_is_documented_and_there_whatever_was_measured(film_room: Film) -> None:
    truth, result = film_room("truth"), film_room("result", size=(18, 24))
    ask_and_answer(truth, result)
    whole = report_json(evaluate(result, truth, EvalSettings()))
    assert all(whole[part] is not None for part in PARTS)
    documented = set(re.findall(r"`([\w-]+)`", DOCUMENT.read_text()))
    assert set(keys_in(whole)) - {"seen"} <= documented
    for part in Part:
        partial = report_json(evaluate(result, truth, EvalSettings(only=(part,))))
        assert partial.keys() == whole.keys()
        assert {name for name in PARTS if partial[name] is not None} - {"compared"} == {part}


def test_numbers_are_those_of_the_report(film_room: Film) -> None:
    truth, result = film_room("truth"), film_room("result", change_depth=lambda depth: 1.1 * depth)
    ask_and_answer(truth, result)
    report = evaluate(result, truth, EvalSettings())
    record = json.loads(json.dumps(report_json(report), allow_nan=False))
    assert report.trajectory is not None
    assert report.points is not None
    assert record["trajectory"]["ate"]["translation"]["rmse"] == report.trajectory.absolute.translation.rmse
    assert record["trajectory"]["pose_auc"] == {"3": 1, "5": 1, "15": 1, "30": 1}
    assert record["trajectory"]["rpe"]["num_pairs"] == 11
    assert abs(record["depth"]["by_alignment"]["metric"]["abs_rel"] - 0.1) < 1e-6
    assert record["points"]["f1"] == report.points.errors.f1
    assert record["answers"]["total"]["right"]["value"] == 1
    met = record["answers"]["total"]["evidence"]["met"]
    assert (met["hits"], met["total"], met["value"], met["interval"][1]) == (1, 1, 1, 1)
    assert met["interval"][0] == pytest.approx(0.2065, abs=1e-4)
    assert record["compared"]["num_matched"] == 12


def test_what_is_no_number_is_null(film_room: Film) -> None:
    truth = film_room("truth")
    holes = iter(range(12))
    blind_once = film_room("blind", change_depth=lambda depth: depth * (next(holes) != 5))
    report = evaluate(blind_once, truth, EvalSettings(only=(Part.DEPTH,)))
    assert report_json(report)["depth"]["num_empty_frames"] == 1
    halting = evaluate(halting_file(truth), truth, EvalSettings(only=(Part.TRAJECTORY,)))
    assert halting.trajectory is not None
    assert halting.trajectory.drift is not None
    assert halting.trajectory.drift.largest_over_smallest == torch.inf
    record = report_json(halting)
    assert record["trajectory"]["scale_drift"]["largest_over_smallest"] is None
    json.dumps(record, allow_nan=False)


def halting_file(truth: Path) -> Path:
    """The truth's way, but the camera stays where it is for the first half."""
    lines = (truth / "poses.tum").read_text().splitlines()
    first = lines[0].split()
    halted = [" ".join([line.split()[0], *first[1:4], *line.split()[4:]]) for line in lines[:6]]
    path = truth / "halting.tum"
    path.write_text("\n".join([*halted, *lines[6:]]) + "\n")
    return path
