from io import StringIO

import pytest
from rich.console import Console

from longtake.api.progress import plain_console, time_left
from longtake.cli import progress
from longtake.cli.progress import TaskProgress, counted_steps, counting


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def test_where_there_is_no_terminal_a_line_comes_now_and_then(clock: Clock) -> None:
    said = StringIO()
    for _ in counted_steps(range(60), "walk[/x].mp4", 60, Console(file=said, markup=False)):
        clock.now_s += 1.0
    expected = [f"walk[/x].mp4: {count} of 60" for count in range(10, 61, 10)]
    assert [line.partition(", ")[0] for line in said.getvalue().splitlines()] == expected
    assert not said.getvalue().startswith("\n")


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with counting("walking", None) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


def test_time_left_is_told_where_the_length_is_known() -> None:
    console = Console(file=StringIO())
    clock = Clock()
    with TaskProgress(console) as bar:
        bar.get_time = clock
        known, unknown = bar.begin("walk.mp4", 7200), bar.begin("camera:0", None)
        for _ in range(3):
            clock.now_s += 1.0
            bar.advance(known)
            bar.advance(unknown)
        assert [time_left(task) for task in bar.tasks] == ["1:59:57 left", ""]


def test_brackets_and_colons_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    plain_console(stderr=False).print("a[/x]b [bold]c[/bold] :car:")
    assert capsys.readouterr().out == "a[/x]b [bold]c[/bold] :car:\n"


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_long_state_is_told_whole_on_a_narrow_terminal(width: int) -> None:
    state = "81%, 12 running, 34 failed, 12345678 frames, 1233.6 frames/s, 10:12:33 left"
    console = Console(file=StringIO(), width=width)
    with TaskProgress(console, tells_left=False, state_below=True) as bar:
        bar.update(bar.begin("Mapping videos", 100_000), completed=81_234, state=state)
        with console.capture() as shown:
            console.print(bar.get_renderable())
    lines = shown.get().splitlines()
    assert lines[0].startswith("Mapping videos ")
    assert "81234/100000" in lines[0]
    assert " ".join(line.strip() for line in lines[1:]) == state
