"""What rows of walks come to: pairs, wrong loops, precision and recall, pictures."""

from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from benchmarks.loop_tables import pairs_of, recall_curve, walk_blocks, walk_record
from benchmarks.many_worlds import Row


def place(similarity: float, *, is_right: bool, is_known: bool = True) -> dict[str, Any]:
    return {"similarity": similarity, "is_right": is_right, "any_is_right": is_right, "is_known": is_known}


def loop(
    *, is_accepted: bool = True, shift_m: float = 0.1, turn_deg: float = 1.0, shared: float = 0.5
) -> dict[str, Any]:
    return {"is_accepted": is_accepted, "shift_m": shift_m, "turn_deg": turn_deg, "shared": shared}


def figures(metres: float) -> dict[str, Any]:
    plan = [[0, 0], [100, 0], [100, 200]]
    return {
        "metres": metres,
        "degrees": 2.0,
        "points": {"precision": 0.4, "recall": 0.4, "f1": 0.4},
        "above": {"found": plan, "true": plan},
        "way": {"found": plan, "true": plan},
    }


def row(seed: int, without_m: float, with_m: float, **more: Any) -> Row:
    task = {"family": "house", "seed": seed, "frames": 600, "model": "micro-map"}
    walk = {"ms": 50.0, "num_withdrawn": 0, "num_sub_maps": 1, "num_apart": 0, "megabytes": 13.0, "num_loops": 2}
    return Row(task, {"without": figures(without_m), "with": figures(with_m), **walk, **more}, 1.0)


ROWS = [
    row(
        8,
        0.4,
        0.1,
        loops=[loop(), loop(shift_m=0.4), loop(is_accepted=False)],
        places=[place(0.8, is_right=True)],
    ),
    row(18, 0.2, 0.2, loops=[], places=[place(0.2, is_right=False, is_known=False)]),
]


def test_each_row_tells_of_a_world_both_ways() -> None:
    pairs = pairs_of(ROWS)
    assert [pair.task["seed"] for pair in pairs] == [8, 18]
    assert [pair.num_returns for pair in pairs] == [1, 0]
    assert [pair.num_wrong for pair in pairs] == [1, 0]


def test_lines_tell_what_all_worlds_come_to() -> None:
    lines, came_back, stayed_away, wrong, recall = walk_blocks(ROWS)
    assert isinstance(lines, Table)
    assert lines.row_count == 2
    assert "that came back: 1 worlds; median 0.400 m without loops and 0.100 with" in str(came_back)
    assert "at most half in 1, more than 5 % worse in 0" in str(came_back)
    assert "without a return: 1 worlds" in str(stayed_away)
    assert "1 of 2 accepted loops wrong in 1200 frames, 8.33 in 10000; 0 of two places that share nothing" in str(wrong)
    assert "of 1 worlds with a wrong one 0 worse" in str(wrong)
    assert isinstance(recall, Table)


def test_a_record_names_each_wrong_loop_and_no_points() -> None:
    record = walk_record(ROWS)
    assert [(one["seed"], one["shift_m"]) for one in record["wrong"]] == [(8, 0.4)]
    assert record["walks"][0]["with"]["metres"] == 0.1
    assert "above" not in record["walks"][0]["with"]


def test_precision_and_recall_are_of_the_best_candidates_from_a_similarity_on() -> None:
    curve = recall_curve(
        [
            place(0.75, is_right=True),
            place(0.65, is_right=False),
            place(0.35, is_right=True),
            place(0.15, is_right=False),
        ]
    )
    at = curve.least.index(0.3)
    assert curve.precision[at] == pytest.approx(2 / 3)
    assert curve.recall[at] == pytest.approx(0.5)
    assert curve.precision[-1] is None
    assert curve.recall[-1] == 0


def test_pictures_are_drawn_of_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.loop_plots import draw_from_above, draw_recall

    pairs = pairs_of(ROWS)
    draw_recall(pairs, tmp_path / "recall.png")
    draw_from_above(pairs, tmp_path / "above.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("recall.png", "above.png"))
