"""Where the pixels of a take lie in those of the video it was made from, as its files say it."""

from typing import Any

from longtake.spatial.placement import Placement
from longtake.takes.fields import JsonObject


def placement_to_json(placement: Placement) -> dict[str, Any]:
    return {
        "width": placement.source_width,
        "height": placement.source_height,
        "scale": [placement.scale_x, placement.scale_y],
        "offset": [placement.offset_x, placement.offset_y],
    }


def placement_from_json(record: JsonObject) -> Placement:
    scale_x, scale_y = record.numbers("scale", 2)
    if not (scale_x > 0 and scale_y > 0):
        raise record.refuse("scale", "2 numbers greater than 0")
    offset_x, offset_y = record.numbers("offset", 2)
    width, height = record.integer("width", least=1), record.integer("height", least=1)
    return Placement(width, height, scale_x, scale_y, offset_x, offset_y)
