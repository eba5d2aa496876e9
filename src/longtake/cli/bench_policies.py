"""`longtake bench policies`: what each memory policy costs, in a map and in answers."""

import itertools
from pathlib import Path
from typing import Annotated

import typer

from longtake.bench.answers import AnswersSettings
from longtake.bench.contenders import POLICIES
from longtake.bench.eviction import EvictionSettings
from longtake.cli.answer_policies import compare_answers, variants
from longtake.cli.map_policies import compare_maps, load_network, usual_size
from longtake.cli.options import AsJson, Device, parse_counts, parse_size, split_names
from longtake.cli.tables import require_folder, show, write_json
from longtake.errors import SettingError
from longtake.evaluation.asked_walk import QuestionPlan
from longtake.evaluation.figures import require_plots
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL
from longtake.hub.load import RANDOM
from longtake.runtime.execution import choose_device
from longtake.world.seeds import Split

DEFAULT_POLICIES = ",".join(POLICIES)
MAP_PICTURE, ANSWERS_PICTURE = "map-policies.png", "answer-policies.png"
NONE = "none"
"""In place of a model: that part is left out."""


def bench_policies(
    model: Annotated[
        str,
        typer.Option(help="Of maps: a checkpoint, a name of longtake models, tiny (random weights); none for no maps."),
    ] = DEFAULT_MODEL,
    language: Annotated[
        str, typer.Option(help="Of answers: folder of a Qwen2.5-VL model, or its name; none for no answers.")
    ] = DEFAULT_LANGUAGE,
    budgets: Annotated[str, typer.Option(help="Frames that may be remembered, separated by commas.")] = "4,8,16",
    worlds: Annotated[int, typer.Option(min=1, help="Houses to walk through.")] = 1,
    split: Annotated[Split, typer.Option(help="Houses to judge by, or those to choose settings by.")] = Split.TEST,
    policy: Annotated[
        str,
        typer.Option(
            help="For maps, of none, ratio, layerwise-R, strict-R, context, managed, key-diversity, farthest-frames, "
            "window, separated by commas; by default all, with ratios R of 0.5 and 0.7.",
            show_default=False,
        ),
    ] = DEFAULT_POLICIES,
    frames: Annotated[int, typer.Option(min=3, help="Frames of each world for maps.")] = 40,
    size: Annotated[
        str | None, typer.Option(help="Width x height for maps; by default as the model was trained.")
    ] = None,
    ask_policy: Annotated[
        str, typer.Option(help="For answers, of keep-all, window, thinned, novel, recent-8, anew-8, with commas.")
    ] = "keep-all,window,thinned,novel",
    ask_frames: Annotated[int, typer.Option(help="Frames of each world for answers.")] = 32,
    ask_size: Annotated[str, typer.Option(help="Width x height of the frames for answers.")] = "168x112",
    ask_fps: Annotated[float, typer.Option(help="Frames a second for answers, up to 10.")] = 2.0,
    moments: Annotated[int, typer.Option(min=1, help="How often a walk is asked about, the last time at its end.")] = 4,
    questions: Annotated[int, typer.Option(min=1, help="Questions at each moment, kinds in turn.")] = 14,
    recent: Annotated[float, typer.Option(min=0, help="Seconds after which a sighting is to be recalled.")] = 4.0,
    training: Annotated[int, typer.Option(min=1, help="Houses from which the commonest answers are known.")] = 50,
    offline: Annotated[int, typer.Option(min=0, help="Questions a world compared with a plain network.")] = 8,
    quick: Annotated[bool, typer.Option("--quick", help="Few small frames, to see that all works.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
    card: Annotated[Path | None, typer.Option(help="Also write the answers' figures, for a model card.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Also draw into this folder.")] = None,
) -> None:
    """Compare memory policies on the same frames: what each costs in a map and in answers, against the truth."""
    if model == language == NONE:
        raise SettingError("Expected a --model for maps, a --language model for answers, or both; name one.")
    if card is not None and language == NONE:
        raise SettingError("A --card is of answers; name a --language model for them.")
    require_folder(card)
    if plots is not None:
        require_plots()
        plots.mkdir(parents=True, exist_ok=True)
    num_kept = parse_counts(budgets, "budgets in frames a layer, such as 4,8,16")
    place, mapped, answered = choose_device(device), None, None
    if model != NONE:
        network = load_network(model, place)
        map_settings = EvictionSettings(
            policies=split_names(policy),
            budgets=num_kept,
            num_frames=min(frames, 5) if quick else frames,
            num_worlds=worlds,
            size=usual_size(network) if size is None else parse_size(size),
            split=split,
            is_trained=model not in RANDOM,
        )
        mapped = compare_maps(model, network, map_settings)
    if language != NONE:
        settings = AnswersSettings(
            variants=variants(split_names(ask_policy), num_kept),
            asking=QuestionPlan(
                num_frames=min(ask_frames, 8) if quick else ask_frames,
                fps=ask_fps,
                num_moments=min(moments, 2) if quick else moments,
                num_questions=questions,
                recent_s=recent,
            ),
            num_worlds=worlds,
            size=parse_size("84x56" if quick else ask_size),
            split=split,
            num_training=min(training, 2) if quick else training,
            num_offline=offline,
        )
        answered = compare_answers(language, settings, place)
    parts = {"map": mapped, "answers": answered}
    record = {name: part.record for name, part in parts.items() if part is not None}
    blocks = itertools.chain.from_iterable(part.blocks() for part in parts.values() if part is not None)
    show(record, blocks, as_json=as_json)
    if card is not None and answered is not None:
        write_json(card, answered.card)
    for part, name in ((mapped, MAP_PICTURE), (answered, ANSWERS_PICTURE)):
        if plots is not None and part is not None:
            part.draw(plots / name)
