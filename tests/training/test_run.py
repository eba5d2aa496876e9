"""`python -m training` as a developer meets it."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longtake.errors import InputError, SettingError
from longtake.language.load import load_language
from longtake.weights.load import load_geometry
from training.recipe import shipped_recipe
from training.run import ASKING, MAPPING, TrainOptions, _Bar, run_train


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A quick training in this process, its houses built in a thread."""
    for room in ("walkers", "question_batches"):
        monkeypatch.setattr(f"training.{room}.one_thread_each", lambda _: ThreadPoolExecutor(1))

    def run(kind: Any = MAPPING, **changes: Any) -> None:
        usual = {"minutes": 5.0, "device": "cpu", "recipe": None, "processes": None, "begin_with": None}
        usual |= {"falls": None, "quick": True}
        run_train(TrainOptions(**{"folder": tmp_path / "training"} | usual | changes), kind)

    return run


@pytest.mark.extra
def test_a_piece_is_put_away_by_an_interrupt_and_gone_on_with(
    train: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = _Bar.tell

    def interrupt(bar: _Bar, line: dict[str, Any]) -> None:
        if line["step"] == 1 and "loss" in line:
            signal.raise_signal(signal.SIGINT)
        tell(bar, line)

    monkeypatch.setattr(_Bar, "tell", interrupt)
    with pytest.raises(SystemExit) as ended:
        train()
    monkeypatch.setattr(_Bar, "tell", tell)
    assert ended.value.code == 130
    told = capsys.readouterr().out
    assert told == f"Steps 1 to 1 of 8 are done and put away; the same command goes on from {tmp_path / 'training'}.\n"
    assert not (tmp_path / "training" / "micro-map.safetensors").exists()
    train()
    assert capsys.readouterr().out.startswith("All 8 steps are done")
    load_geometry(tmp_path / "training" / "micro-map.safetensors")
    before = (tmp_path / "training" / "curve.jsonl").read_text()
    train()
    assert capsys.readouterr().out.startswith("All 8 steps are done")
    assert (tmp_path / "training" / "curve.jsonl").read_text() == before


@pytest.mark.extra
def test_a_model_that_answers_is_trained_to_its_folder(
    train: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(ASKING)
    folder = tmp_path / "training" / "micro-vqa"
    out = capsys.readouterr()
    assert out.out.startswith(f"All 6 steps are done, and the model is {folder} (")
    assert out.out.endswith(f"use it: longtake ask VIDEO QUESTION --model {folder}\n")
    assert "% right answers" in out.err
    load_language(folder)


def test_too_little_time_is_said(train: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    train(minutes=0.0)
    assert capsys.readouterr().out.startswith("No step was made in this time, 0 of 8 are done; with more --minutes the")


def test_what_cannot_be_is_refused_before_anything_is_built(train: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="leave out --quick or --recipe"):
        train(recipe=shipped_recipe("micro-map"))
    with pytest.raises(InputError, match=r"none\.toml"):
        train(recipe=tmp_path / "none.toml", quick=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Expected a folder"):
        train(folder=tmp_path / "file" / "training")
    with pytest.raises(SettingError, match="no device 'tpu'"):
        train(device="tpu", quick=False)


def test_the_bar_says_how_long_it_will_be() -> None:
    bar = _Bar(100, 600.0)
    bar.begin(20)
    assert bar._seconds_left(20, 60.0) == 540.0
    bar.tell({"step": 20, "seconds": 50.0, "began_s": 50.0})
    assert bar._seconds_left(30, 60.0) == pytest.approx(70.0)
    assert bar._seconds_left(30, 550.0) == pytest.approx(50.0)
    assert bar._seconds_left(100, 700.0) == 0.0
