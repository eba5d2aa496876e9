"""longtake watches a video that never cuts: frames go in one by one, geometry and answers come out at once.

    import longtake

    take = longtake.map("walk.mp4", out="mapped", memory="2GB")
    session = longtake.GeometrySession.from_pretrained("micro-map")
    chat = longtake.DialogueSession.from_pretrained("micro-vqa")

What `__all__` names is the public API; it is loaded when it is first used, so that `import longtake` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtake.api.dialogue_session import DialogueSession
    from longtake.api.evaluating import evaluate
    from longtake.api.exporting import export
    from longtake.api.geometry_session import GeometrySession
    from longtake.api.live_session import LiveSession
    from longtake.api.locating import locate
    from longtake.api.mapping import map
    from longtake.api.merging import merge
    from longtake.api.models import load_language_model, load_model
    from longtake.api.take import Take, open_take
    from longtake.api.video import open_video
    from longtake.batch.mapping import map_many
    from longtake.errors import LongtakeError
    from longtake.runtime.answers import Answer
    from longtake.server.async_client import AsyncClient
    from longtake.server.client import Client
    from longtake.types import Geometry

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "DialogueSession",
    "Geometry",
    "GeometrySession",
    "LiveSession",
    "LongtakeError",
    "Take",
    "evaluate",
    "export",
    "load_language_model",
    "load_model",
    "locate",
    "map",
    "map_many",
    "merge",
    "open_take",
    "open_video",
]
_HOMES = {
    "Answer": "longtake.runtime.answers",
    "AsyncClient": "longtake.server.async_client",
    "Client": "longtake.server.client",
    "DialogueSession": "longtake.api.dialogue_session",
    "Geometry": "longtake.types",
    "GeometrySession": "longtake.api.geometry_session",
    "LiveSession": "longtake.api.live_session",
    "LongtakeError": "longtake.errors",
    "Take": "longtake.api.take",
    "evaluate": "longtake.api.evaluating",
    "export": "longtake.api.exporting",
    "load_language_model": "longtake.api.models",
    "load_model": "longtake.api.models",
    "locate": "longtake.api.locating",
    "map": "longtake.api.mapping",
    "map_many": "longtake.batch.mapping",
    "merge": "longtake.api.merging",
    "open_take": "longtake.api.take",
    "open_video": "longtake.api.video",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"longtake has no '{name}'; it has {', '.join(__all__)}")
    return vars(import_module(_HOMES[name]))[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
