"""Maps of unseen houses: the truth itself scores best, rows are those of sessions, options become settings."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.bench.quality import MapVariant, QualityRow, QualitySettings, film_world, measure_quality
from longtake.cli.bench_quality import bench_quality, variants
from longtake.errors import BudgetError, InputError, SettingError
from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.walk_quality import FilmedWalk, MappedWalk, score_walk
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.memory.budget import Budget
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.registry import stream_policy_named
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.build import SMALL, open_session
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.windows import Windows
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY
from longtake.world.families import Family
from longtake.world.seeds import Split
from longtake.world.tour import Tour

SIZE = (28, 42)
LONG = 13
"""Frames: more than a window of those below."""
CPU = torch.device("cpu")
USUAL = MapVariant(name="usual", session=SMALL)
WINDOWED = MapVariant(
    name="windowed",
    session=replace(SMALL, windows=Windows(size=10, overlap_frames=3), alignment=Alignment(Anchoring.KEYFRAME_PAIRS)),
)
SETTINGS = QualitySettings(variants=(USUAL, WINDOWED), frames=(5, LONG), num_worlds=2, size=SIZE)
OPTIONS = {"model": "tiny", "worlds": 2, "size": "42x28", "frames": "4,7"}


def chosen_variants(**choices: str) -> tuple[MapVariant, ...]:
    """With the usual for what is not chosen."""
    names = ("scale_frames", "policy", "memory", "keyframes", "windows", "align")
    return variants(SMALL, *(choices.get(name, "usual") for name in names))


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(TINY, CPU)


@pytest.fixture(scope="module")
def rows(model: GeometryModel) -> list[QualityRow]:
    ticks: list[int] = []
    found = measure_quality(model, SETTINGS, ticks.append)
    assert sum(ticks) == SETTINGS.num_steps == 2 * (LONG + 2 * (5 + LONG))
    return found


@pytest.fixture(scope="module")
def film() -> FilmedWalk:
    return film_world(9, LONG, SIZE, CPU, lambda _: None)


def test_film_is_the_beginning_of_the_tour(film: FilmedWalk) -> None:
    views = list(itertools.islice(Tour(seed=9, width=SIZE[1], height=SIZE[0]).views(), LONG))
    assert torch.equal(film.images, torch.stack([view.image for view in views]))
    assert torch.equal(film.truth.depth, torch.stack([view.depth for view in views]))
    assert torch.equal(film.truth.world_from_camera, torch.stack([view.world_from_camera for view in views]))
    assert torch.equal(film.intrinsics, views[0].intrinsics)
    assert (
        len(film.first(4).images) == len(film.first(4).truth.depth) == len(film.first(4).truth.world_from_camera) == 4
    )


def test_truth_itself_has_no_error_and_beats_every_baseline(film: FilmedWalk) -> None:
    found = MappedWalk(film.truth, film.intrinsics.expand(LONG, 3, 3))
    world = score_walk(found, film, seed=9, watched_s=1.0)
    assert world.score.ate_share == pytest.approx(0, abs=1e-9)
    assert world.score.rotation_deg == pytest.approx(0, abs=1e-5)
    assert world.score.depth_abs_rel == pytest.approx(0, abs=1e-6)
    assert world.fov_deg == pytest.approx(0, abs=1e-4)
    torch.testing.assert_close(world.paths.found, world.paths.true)
    row = QualityRow(variant=USUAL, num_frames=LONG, worlds=(world,))
    assert row.better_share("times_velocity") == row.better_share("times_straight") == 1
    assert row.frame_ms == pytest.approx(1000 / LONG)


def test_times_better_is_the_baseline_over_the_error(film: FilmedWalk) -> None:
    bent = film.truth.world_from_camera.clone()
    bent[4:, 0, 3] += 0.1
    run = ClipGeometry(film.truth.depth * torch.linspace(1, 1.5, LONG)[:, None, None], bent)
    world = score_walk(MappedWalk(run, film.intrinsics.expand(LONG, 3, 3)), film, seed=9, watched_s=1.0)
    assert world.score.ate_share is not None
    assert world.baselines.velocity_ate_share is not None
    assert world.times_velocity == world.baselines.velocity_ate_share / world.score.ate_share
    assert world.times_mean_depth == world.baselines.mean_depth_abs_rel / world.score.depth_abs_rel
    assert world.path_m == pytest.approx(float(film.truth.world_from_camera[:, :3, 3].diff(dim=0).norm(dim=-1).sum()))


def test_metres_are_the_share_times_the_path_and_stand_beside_standing_still(film: FilmedWalk) -> None:
    bent = film.truth.world_from_camera.clone()
    bent[4:, 0, 3] += 0.1
    longer = film.intrinsics.expand(LONG, 3, 3) * torch.tensor([[1.1, 1, 1], [1, 0.8, 1], [1, 1, 1]])
    world = score_walk(MappedWalk(ClipGeometry(film.truth.depth, bent), longer), film, seed=9, watched_s=1.0)
    figures = world.figures()
    assert world.score.ate_share is not None
    assert world.score.ate_m == pytest.approx(world.score.ate_share * world.path_m)
    centres = film.truth.world_from_camera[:, :3, 3]
    away = (centres - centres.mean(dim=0)).square().sum(dim=-1).mean().sqrt()
    assert world.baselines.still_ate_m == pytest.approx(float(away))
    assert figures["times_still"] == pytest.approx(float(away) / world.score.ate_m)
    assert figures["focal_share"] == pytest.approx(0.15, abs=1e-6)


def test_worlds_of_other_families_are_filmed_and_sky_counts_for_nothing(model: GeometryModel) -> None:
    wanted = replace(SETTINGS, variants=(USUAL,), frames=(5,), num_worlds=2, family=Family.OUTDOORS)
    (row,) = measure_quality(model, wanted, lambda _: None)
    film = film_world(9, 5, SIZE, CPU, lambda _: None, family=Family.OUTDOORS)
    views = list(itertools.islice(Tour(seed=9, width=SIZE[1], height=SIZE[0], family=Family.OUTDOORS).views(), 5))
    assert torch.equal(film.truth.depth, torch.stack([view.depth for view in views]))
    assert not film.truth.depth.isfinite().all()
    assert all(value is None or math.isfinite(value) for world in row.worlds for value in world.figures().values())


def test_share_of_worlds_counts_those_that_beat_the_baseline(rows: list[QualityRow]) -> None:
    for row in rows:
        times = [world.times_mean_depth for world in row.worlds]
        assert None not in times
        assert row.better_share("times_mean_depth") == sum(time > 1 for time in times if time is not None) / 2


def test_every_length_and_way_has_a_row_of_test_worlds(rows: list[QualityRow]) -> None:
    assert [(row.num_frames, row.variant.name) for row in rows] == [
        (5, "usual"),
        (5, "windowed"),
        (LONG, "usual"),
        (LONG, "windowed"),
    ]
    assert all([world.seed for world in row.worlds] == [9, 19] for row in rows)
    for summary in rows[0].summaries().values():
        assert summary is not None
        assert summary.num_worlds == 2
        assert summary.lower_quartile <= summary.median <= summary.upper_quartile


def test_figures_are_those_of_a_session_that_watched_the_same_frames(
    model: GeometryModel, rows: list[QualityRow], film: FilmedWalk
) -> None:
    for row in rows[2:]:
        session = open_session(model, row.variant.session, SIZE)
        parts = list(session.run(film.images))
        poses = torch.cat([part.world_from_camera for part in parts]).double()
        run = MappedWalk(
            ClipGeometry(torch.cat([part.depth for part in parts]), poses), torch.cat([p.intrinsics for p in parts])
        )
        want = score_walk(run, film, seed=9, watched_s=0.0)
        assert row.worlds[0].figures() == want.figures()


def test_windows_matter_once_a_walk_is_longer(rows: list[QualityRow]) -> None:
    short, short_windowed, long, long_windowed = (row.worlds[0].figures() for row in rows)
    assert short == short_windowed
    assert long != long_windowed


def test_settings_are_chosen_by_houses_of_their_own(model: GeometryModel) -> None:
    wanted = replace(SETTINGS, variants=(USUAL,), frames=(3,), split=Split.VALIDATION)
    (row,) = measure_quality(model, wanted, lambda _: None)
    assert [world.seed % 10 for world in row.worlds] == [8, 8]


def test_walk_that_is_too_short_to_align_is_refused() -> None:
    with pytest.raises(SettingError, match="3 frames at least, but got 2"):
        replace(SETTINGS, frames=(48, 2))
    with pytest.raises(SettingError, match="name one of each"):
        replace(SETTINGS, variants=())


def test_setting_without_room_is_refused_before_anything_is_filmed(model: GeometryModel) -> None:
    crowded = replace(USUAL, session=replace(SMALL, budget=Budget(num_frames=2)))
    ticks: list[int] = []
    with pytest.raises(BudgetError, match="cannot hold 8 anchors"):
        measure_quality(model, replace(SETTINGS, variants=(crowded,)), ticks.append)
    assert not ticks


def test_choices_of_options_are_combined() -> None:
    chosen = chosen_variants(keyframes="usual,every:3", windows="64/8, none", align="usual,robust")
    assert [variant.name for variant in chosen] == [
        "windows 64/8",
        "windows 64/8, robust",
        "windows none",
        "every:3, windows 64/8",
        "every:3, windows 64/8, robust",
        "every:3, windows none",
    ]
    assert chosen[4].session.keyframes == EveryNth(3)
    assert chosen[4].session.windows == Windows(size=64, overlap_frames=8)
    assert chosen[4].session.alignment == Alignment(Anchoring.ROBUST)
    assert chosen[5].session.windows is None


def test_nothing_said_is_the_usual_way() -> None:
    assert chosen_variants() == (USUAL,)


def test_policy_memory_and_scale_frames_are_set() -> None:
    (managed,) = chosen_variants(policy="managed", memory="24 frames")
    assert (managed.name, managed.session.retention) == ("managed, 24 frames", stream_policy_named("managed"))
    assert managed.session.budget == Budget(num_frames=24)
    (fewer,) = chosen_variants(scale_frames="2")
    assert fewer.session.num_scale_frames == 2
    assert fewer.session.retention == ContextRetention(anchors=2, window=16, history=512)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frames": "48,many"}, "such as 48,300"),
        ({"frames": "0"}, "such as 48,300"),
        ({"scale_frames": "none"}, "such as 4, but got 'none'"),
        ({"windows": "8-2"}, "windows as 128/16"),
        ({"keyframes": "sometimes"}, "keyframes as every:6"),
        ({"align": "by eye"}, "no alignment rule 'by eye'"),
        ({"policy": "lots"}, "no memory policy 'lots'"),
        ({"size": "small"}, "Expected a size"),
        ({"family": "castles"}, "no family of worlds 'castles'"),
    ],
)
def test_option_without_meaning_is_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        bench_quality(**OPTIONS | changes)


def test_folder_that_is_not_there_is_told_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no folder .*missing to write q\.json"):
        bench_quality(**OPTIONS, card=tmp_path / "missing" / "q.json")


@pytest.mark.extra
def test_table_json_and_plot_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    card = tmp_path / "card.json"
    bench_quality(**OPTIONS, plot=tmp_path / "quality.png")
    said = capsys.readouterr().out
    assert "4 frames, usual settings, tiny, 2 test worlds at 42x28, CPU, 1 thread" in said
    assert "constant velocity" in said
    assert "The weights are random" in said
    bench_quality(**OPTIONS, as_json=True, card=card)
    written = json.loads(capsys.readouterr().out)
    assert [(row["num_frames"], row["settings"]) for row in written["rows"]] == [(4, "usual"), (7, "usual")]
    row = written["rows"][0]
    assert [world["seed"] for world in row["worlds"]] == [9, 19]
    shares = [world["ate_share"] for world in row["worlds"]]
    assert row["summary"]["ate_share"]["median"] == pytest.approx(sum(shares) / 2)
    assert set(row["better_share"]) == {"times_velocity", "times_straight", "times_still", "times_mean_depth"}
    assert written["weights_sha256"] is None  # of the package's own files only
    for row in written["rows"]:
        del row["worlds"]
    assert json.loads(card.read_text()) == written
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")


def test_families_and_sizes_are_told_apart_and_the_one_held_out_comes_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card = tmp_path / "card.json"
    bench_quality(model="tiny", worlds=1, frames="4", family="house,table", size="42x28,28x42", card=card)
    said = capsys.readouterr().out
    lines = [line.split()[:2] for line in said.splitlines() if line.startswith(("house", "table"))]
    assert lines == [["table", "42x28"], ["table", "28x42"], ["house", "42x28"], ["house", "28x42"]]
    assert "tiny, 1 test world each" in said
    rows = json.loads(card.read_text())["rows"]
    assert [(row["family"], row["width"], row["height"]) for row in rows[1:3]] == [("table", 28, 42), ("house", 42, 28)]


def test_several_ways_are_compared_and_a_model_from_a_file_is_not_called_random(
    model: GeometryModel, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(model, path)
    bench_quality(model=str(path), frames="11", windows="usual,9/2", worlds=1, size="42x28")
    said = capsys.readouterr().out
    assert "model.safetensors, 1 test world at 42x28" in said
    assert "windows 9/2" in said
    assert "random" not in said


def test_two_processes_say_the_same_as_one_but_for_times(capsys: pytest.CaptureFixture[str]) -> None:
    options = OPTIONS | {"worlds": 3, "family": "house,table", "windows": "usual,9/2", "as_json": True}
    said = []
    for processes in (1, 2):
        bench_quality(**options, processes=processes)
        record = json.loads(capsys.readouterr().out)
        assert all(row.pop("frame_ms") > 0 for row in record["rows"])
        said.append(record)
    assert said[0] == said[1]


def test_setting_without_room_is_refused_before_processes_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BudgetError, match="cannot hold 8 anchors"):
        bench_quality(**OPTIONS, memory="2 frames", processes=2)
