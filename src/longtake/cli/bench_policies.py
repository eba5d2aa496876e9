"""`longtake bench policies`: what each memory policy costs, in a map and in answers."""

import itertools
from pathlib import Path

from longtake.cli.answer_policies import AnswerPolicyOptions, compare_answers
from longtake.cli.map_policies import MapPolicyOptions, compare_maps
from longtake.cli.tables import require_folder, show, write_json
from longtake.errors import SettingError
from longtake.extras import import_from_extra

MAP_PICTURE, ANSWERS_PICTURE = "map-policies.png", "answer-policies.png"


def run_policies(
    maps: MapPolicyOptions | None,
    answers: AnswerPolicyOptions | None,
    *,
    as_json: bool,
    card: Path | None = None,
    plots: Path | None = None,
) -> None:
    """Either part may be left out, not both."""
    if maps is None and answers is None:
        raise SettingError("Expected a --model for maps, a --language model for answers, or both; name one.")
    if card is not None and answers is None:
        raise SettingError("A --card is of answers; name a --language model for them.")
    require_folder(card)
    if plots is not None:
        import_from_extra("matplotlib", "plot", "Drawing")  # refused before the work, not after it
        plots.mkdir(parents=True, exist_ok=True)
    mapped = None if maps is None else compare_maps(maps)
    answered = None if answers is None else compare_answers(answers)
    parts = {"map": mapped, "answers": answered}
    record = {name: part.record for name, part in parts.items() if part is not None}
    blocks = itertools.chain.from_iterable(part.blocks() for part in parts.values() if part is not None)
    show(record, blocks, as_json=as_json)
    if card is not None and answered is not None:
        write_json(card, answered.card)
    for part, name in ((mapped, MAP_PICTURE), (answered, ANSWERS_PICTURE)):
        if plots is not None and part is not None:
            part.draw(plots / name)
