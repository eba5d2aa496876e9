from pathlib import Path

import numpy as np
from PIL import Image

from longtake.export.frame import MappedFrame
from longtake.export.masks import MaskFolder
from longtake.geometry.model import GeometryModel
from longtake.pipeline.mapper import Mapper, Prepared
from longtake.pipeline.status import StatusJudge
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.retention import ContextRetention
from longtake.video.preprocess import Preprocessor
from longtake.video.source import open_source


def test_results_come_with_the_pictures_they_belong_to_and_their_names(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for name in ("b10", "b2", "a1"):
        Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    settings = SessionSettings(
        image_size=56, num_scale_frames=2, retention=ContextRetention(anchors=2, window=2, history=8), windows=None
    )
    prepare = Preprocessor(size=56)
    mapper = Mapper(open_session(tiny_model, settings, (42, 56)), StatusJudge())
    mapped: list[MappedFrame] = []
    for frame in open_source(str(tmp_path)).frames():
        assert frame.image is not None
        assert mapper.first_owed in (None, 0)
        mapped += mapper.step(Prepared(frame, prepare(frame.image)))
    mapped += mapper.finish()
    assert [frame.source_name for frame in mapped] == ["a1", "b2", "b10"]
    for frame in mapped:
        with Image.open(tmp_path / f"{frame.source_name}.png") as image:
            assert np.array_equal(frame.source_image, np.asarray(image))
        assert frame.image.shape == (42, 56, 3)
        assert frame.placement.source_width == 40
    masks = tmp_path / "masks"
    masks.mkdir()
    Image.new("L", (40, 30), 0).save(masks / "b2.png")
    assert [MaskFolder(masks).find(frame) is not None for frame in mapped] == [False, True, False]
