import pytest
from walked import WALK

import longtake
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel
from longtake.video.frame import VideoFrame


@pytest.fixture(scope="session")
def model() -> GeometryModel:
    return longtake.load_model("micro-map", device="cpu")


@pytest.fixture(scope="session")
def language() -> LanguageModel:
    return longtake.load_language_model("micro-vqa", device="cpu")


@pytest.fixture(scope="session")
def frames() -> list[VideoFrame]:
    return list(longtake.open_video(WALK))
