"""Commands that count over many worlds: what loops are worth (`loop-walks`, `loop-pairs`, `tracking`, `second-walks`,
`loop-cost`, `loop-bytes`, `loop-plots`), and what a model knows (`familiarity`, `unlikeness`).

Nothing that reads videos or pictures is needed for them; `python -m benchmarks.place_commands` runs without that, and
has `longtake bench places` and `quality` too, as `bench-places` and `bench-quality`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.familiarity import familiarity, unlikeness
from benchmarks.loop_bytes import held_table, measure_held
from benchmarks.loop_cost import cost_figures, cost_table, cost_tasks
from benchmarks.loop_pairs import loop_pairs
from benchmarks.loop_tables import pairs_of, walk_blocks, walk_record
from benchmarks.loop_walks import walk_figures, walk_tasks
from benchmarks.many_worlds import Crew, Row, Task, Work, count_worlds, read_rows
from benchmarks.second_walks import second_walk_blocks, second_walk_figures, second_walk_tasks
from benchmarks.tracking import FILMS, tracking_blocks, tracking_figures, tracking_tasks
from longtake.cli.bench_places import bench_places
from longtake.cli.bench_quality import bench_quality
from longtake.cli.options import AsJson, Families, Processes, parse_counts, split_names
from longtake.cli.program import run_program
from longtake.cli.progress import counting
from longtake.cli.tables import require_folder, show
from longtake.errors import SettingError
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split

Rows = Annotated[
    Path | None, typer.Option(help="File to which each row is added at once; worlds that it has are not walked again.")
]
ShowsOnly = Annotated[bool, typer.Option("--show", help="Walk nowhere: show what the file of --rows has.")]
Model = Annotated[str, typer.Option(help="A geometry model with a card of loops.")]
WhichSplit = Annotated[Split, typer.Option(help="Which worlds.")]


def loop_walks(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones of each family.")] = 4,
    first: Annotated[int, typer.Option("--from", min=0, help="The least seed.")] = 0,
    frames: Annotated[int, typer.Option(min=64, help="Of each walk.")] = 1000,
    split: WhichSplit = Split.VALIDATION,
    model: Model = "micro-map",
    processes: Processes = 1,
    rows: Rows = None,
    shows_only: ShowsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Walk through unseen worlds with loops, and without: errors, points, wrong loops, what was known again."""
    tasks = walk_tasks(families_named(split_names(family)), split, worlds, frames, model, first=first)
    counted = _counted(walk_figures, tasks, Crew(processes=processes, rows=rows), shows_only=shows_only)
    show(walk_record(counted), walk_blocks(counted), as_json=as_json)


def tracking(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones of each family.")] = 3,
    frames: Annotated[int, typer.Option(min=60, help="Of each walk.")] = 400,
    films: Annotated[str, typer.Option(help="Some of walk, cut, kidnapped, dark, still.")] = "all",
    split: WhichSplit = Split.VALIDATION,
    model: Model = "micro-map",
    processes: Processes = 1,
    rows: Rows = None,
    shows_only: ShowsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Walks that are cut, kidnapped, darkened or stopped in their middle: when that is noticed, and what is found."""
    wanted = FILMS if films == "all" else split_names(films)
    tasks = tracking_tasks(families_named(split_names(family)), split, worlds, frames, wanted, model)
    counted = _counted(tracking_figures, tasks, Crew(processes=processes, rows=rows), shows_only=shows_only)
    show([asdict(row) for row in counted], tracking_blocks(counted), as_json=as_json)


def second_walks(
    *,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen houses.")] = 20,
    frames: Annotated[int, typer.Option(min=16, help="Of each first walk.")] = 600,
    second_frames: Annotated[int, typer.Option(min=8, help="Of each second walk.")] = 120,
    strange: Annotated[int, typer.Option(min=0, help="Other houses whose second walks are looked for in each.")] = 3,
    split: WhichSplit = Split.TEST,
    model: Model = "micro-map",
    processes: Processes = 1,
    rows: Rows = None,
    shows_only: ShowsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Look for second walks in the maps of first ones, and in maps of other houses; merge them."""
    tasks = second_walk_tasks(split, worlds, frames, second_frames, strange, model)
    counted = _counted(second_walk_figures, tasks, Crew(processes=processes, rows=rows), shows_only=shows_only)
    show([asdict(row) for row in counted], second_walk_blocks(counted), as_json=as_json)


def loop_cost(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones of each family.")] = 1,
    frames: Annotated[int, typer.Option(min=64, help="Of each walk.")] = 1000,
    split: WhichSplit = Split.VALIDATION,
    model: Model = "micro-map",
    processes: Processes = 1,
    rows: Rows = None,
    shows_only: ShowsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Time a session with loops beside one without, frame by frame, and how long steps wait for the solver."""
    tasks = cost_tasks(families_named(split_names(family)), split, worlds, frames, model)
    counted = _counted(cost_figures, tasks, Crew(processes=processes, rows=rows), shows_only=shows_only)
    show([asdict(row) for row in counted], [cost_table(counted)], as_json=as_json)


def loop_bytes(
    *,
    frames: Annotated[int, typer.Option(min=200, help="Frames of the simulated walk.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Walk for very long, with looks and poses that are drawn: what index, graph and kept pictures hold."""
    torch.set_num_threads(1)
    at = sorted({frames // part for part in (100, 20, 10, 4, 2, 1)})
    with counting("walking", len(at)) as advance:
        figures = []
        for one in measure_held(frames, at):
            figures.append(one)
            advance(1)
    show([asdict(one) for one in figures], [held_table(figures)], as_json=as_json)


def loop_plots(
    *,
    rows: Annotated[Path, typer.Option(help="File that loop-walks wrote.")],
    recall: Annotated[Path | None, typer.Option(help="Picture of precision and recall over similarity.")] = None,
    above: Annotated[Path | None, typer.Option(help="Picture of worlds from above.")] = None,
    drawn: Annotated[
        str, typer.Option("--seeds", help="Worlds from above, with commas; by default the first two.")
    ] = "",
) -> None:
    """Draw what rows of loop-walks say; needs matplotlib."""
    from benchmarks.loop_plots import draw_from_above, draw_recall

    pairs = pairs_of(read_rows(rows))
    if not pairs:
        raise SettingError(f"Expected rows of loop-walks in {rows}, but there are none.")
    if recall is not None:
        draw_recall(pairs, recall)
    if above is not None:
        seeds = parse_counts(drawn, "seeds such as 9,19") if drawn else ()
        draw_from_above([pair for pair in pairs if pair.task["seed"] in seeds] or pairs[:2], above)


def _counted(work: Work, tasks: Sequence[Task], crew: Crew, *, shows_only: bool) -> list[Row]:
    require_folder(crew.rows)
    if not shows_only:
        return count_worlds(work, tasks, crew)
    if crew.rows is None:
        raise SettingError("Expected the file whose rows are shown; name it with --rows.")
    return read_rows(crew.rows)


COMMANDS = (familiarity, loop_bytes, loop_cost, loop_pairs, loop_plots, loop_walks, second_walks, tracking, unlikeness)

if __name__ == "__main__":
    places = typer.Typer(
        help="Count over many worlds.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    for command in (*COMMANDS, bench_places, bench_quality):
        places.command()(command)
    run_program(places, "python -m benchmarks.place_commands")
