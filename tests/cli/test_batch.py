"""`longtake batch` as a user meets it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from done import Done
from prompt_pool import PromptPool, done

from longtake.batch.driver import Batch
from longtake.batch.events import Progress
from longtake.batch.job import Job, Told
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.cli.batch import _reported, _state, _told_once


def test_what_notes_advise_is_an_option(run_here: Callable[..., Done], tmp_path: Path) -> None:
    done = run_here("batch", "world:1", "--out", str(tmp_path / "out"), "--fit", "stretch")
    assert done.returncode == 2
    assert "Expected fit as crop, pad" in done.stderr


@pytest.mark.parametrize(("left_s", "told"), [(None, ""), (250.0, ", 0:04:10 left")])
def test_a_line_says_how_far_the_whole_is(left_s: float | None, told: str) -> None:
    progress = Progress(
        num_videos=1,
        done=0,
        running=1,
        num_workers=2,
        failed=0,
        share=0.254,
        num_frames=223,
        frames_per_s=21.64,
        eta_s=left_s,
    )
    assert _state(progress) == f"25%, 1 running, 0 failed, 223 frames, 21.6 frames/s{told}"


def test_notes_that_differ_in_a_number_are_told_once_with_a_video_that_has_them() -> None:
    notes = [("a", "Cut off."), ("b", "It is 1.7 times as far."), ("c", "It is 12 times as far.")]
    assert _told_once(notes) == ["b and 1 more video: It is 1.7 times as far.", "a: Cut off."]


def test_parts_that_are_not_joined_are_told_once_for_all_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apart = {"w1": [1, 2, 3], "w2": [], "w3": [1]}

    def outcome(job: Job) -> Told:
        tracking = {"states": {"ok": 5}, "reasons": {}, "num_sub_maps": 4, "apart": apart.get(job.name, [])}
        notes = [f"{kind} of a kind." for kind in "abcdefgh"]
        finished = done(job)
        return replace(finished, summary=finished.summary | {"tracking": tracking, "notes": notes})

    rows = [{"source": f"world:{number}", "name": f"w{number}"} for number in range(4)]
    manifest = open_manifest(rows, {"model": "tiny"})
    _reported(Batch(manifest, open_storage(tmp_path), PromptPool(outcome)))
    told = [line for line in capsys.readouterr().out.splitlines() if "apart" in line]
    assert told == ["w1 and 1 more video: Parts of the map lie apart: 4 sub-maps, 3 of them not joined."]


def test_what_comes_to_nothing_leaves_no_folder(run_here: Callable[..., Done], tmp_path: Path) -> None:
    done = run_here("batch", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "there is no" in done.stderr
    assert not (tmp_path / "out").exists()


def test_several_videos_are_a_list_as_a_shell_writes_one_for_a_glob(
    run_here: Callable[..., Done], tmp_path: Path
) -> None:
    worlds = [f"world:{seed}?frames=2&size=56x42" for seed in (9, 19)]
    done = run_here("batch", *worlds, "--out", str(tmp_path), "--model", "tiny", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*/summary.json"))) == 2
