"""Where a picture was taken in a mapped world, in the words of `longtake locate`."""

from dataclasses import replace
from pathlib import Path

from longtake.api.arguments import checked_arguments
from longtake.api.models import model_and_execution
from longtake.api.pictures import as_rgb
from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import loop_card_of
from longtake.pipeline.continuing import EarlierTake
from longtake.places.known_take import KnownTake
from longtake.places.locating import Located, PictureLocator
from longtake.places.verification import Verifier
from longtake.runtime.build import usual_settings
from longtake.runtime.execution import AUTO
from longtake.runtime.record import weights_fingerprint
from longtake.takes.header import Network
from longtake.takes.take import Take, read_take
from longtake.video.resize import open_image


@checked_arguments
def locate(
    result: str | Path | Take,
    picture: object,
    *,
    model: GeometryModel | None = None,
    device: str = AUTO,
) -> Located | None:
    """Where a picture was taken, in the world of a mapped video of the same camera; None where that is not known.

        found = longtake.locate("mapped", "photo.jpg")
        if found is not None:
            print(found.world_from_camera, found.frame, found.confidence)

    `picture` is a file, or a picture as sessions take them. The model that made the result is loaded, unless it is
    given as `longtake.load_model` gave it. Nothing is written.
    """
    image = as_rgb(open_image(Path(picture)) if isinstance(picture, str | Path) else picture)
    take = result if isinstance(result, Take) else read_take(Path(result))
    return open_locator(take, model, device).locate(image)


def open_locator(take: Take, model: GeometryModel | None = None, device: str = AUTO) -> PictureLocator:
    """For any number of pictures."""
    known = KnownTake.finished(take)
    verifier = verifier_of(known.network)
    loaded, execution = model_and_execution(known.network.name if model is None else model, device)
    require_same_weights(known, loaded)
    settings = replace(usual_settings(loaded.config), precision=execution.precision)
    return PictureLocator(known, loaded, settings, verifier)


def open_earlier(folder: Path | None) -> EarlierTake | None:
    """The take that a video is to go on in, if one is named."""
    if folder is None:
        return None
    known = KnownTake.finished(read_take(folder))
    return EarlierTake(known, verifier_of(known.network))


def verifier_of(network: Network) -> Verifier:
    """By the card that lies beside a network's weights."""
    card = loop_card_of(network.name)
    if card is None:
        raise InputError(
            f"Expected a card of {network.name} that says when a place is believed, but it has none; micro-map has one."
        )
    return Verifier(card)


def require_same_weights(known: KnownTake, model: GeometryModel) -> None:
    """Refuse a network that would not know the places of a take."""
    if weights_fingerprint(model) != known.network.fingerprint:
        raise InputError(
            f"Expected the model that made {known.take.folder}, {known.network.name}, but got another, or other "
            "weights by that name; map the video again with this one, or name that."
        )
