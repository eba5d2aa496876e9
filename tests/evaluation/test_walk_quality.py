from collections.abc import Callable

import numpy as np
import pytest
import torch

from longtake.cli.demo_report import truth_for_report
from longtake.errors import InputError
from longtake.evaluation.take_quality import read_walk, score_take
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, Unit
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take
from longtake.takes.writer import TakeWriter
from longtake.world.tour import Tour

SEED, FRAMES, SCALE = 19, 12, 0.25
TURN = matrix_from_quaternion(torch.tensor([0.1, 0.6, -0.2, 0.7], dtype=torch.float64))
RESULT_FROM_TRUTH = Similarity(torch.tensor(SCALE, dtype=torch.float64), TURN, torch.tensor([3.0, -1.0, 2.0]).double())


@pytest.fixture(scope="module")
def write_walk(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Take]:
    """The first frames of a walk as a take, moved and shrunk as a network might say them."""

    def write(moved: Similarity, num_frames: int = FRAMES) -> Take:
        folder = tmp_path_factory.mktemp("take")
        header = TakeHeader(
            content=Content.RESULT,
            unit=Unit.MODEL,
            width=42,
            height=28,
            images=ImageFiles.PNG,
            depth=DepthFiles(None),
        )
        views = Tour(seed=SEED, width=42, height=28).views()
        with TakeWriter(folder, header) as writer:
            for view, _ in zip(views, range(num_frames), strict=False):
                writer.write(
                    TakeFrame(
                        index=view.index,
                        timestamp_s=view.timestamp_s,
                        world_from_camera=moved.of_cameras(view.world_from_camera),
                        intrinsics=view.intrinsics,
                        image=(view.image.movedim(0, -1) * 255).round().byte().numpy(),
                        depth=view.depth.numpy() * np.float32(moved.scale),
                    )
                )
        return read_take(folder)

    return write


@pytest.fixture(scope="module")
def truth(write_walk: Callable[..., Take]) -> Take:
    one = torch.ones((), dtype=torch.float64)
    return write_walk(Similarity(one, torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)))


@pytest.fixture(scope="module")
def moved(write_walk: Callable[..., Take]) -> Take:
    return write_walk(RESULT_FROM_TRUTH)


def test_film_is_what_was_filmed(truth: Take) -> None:
    film = read_walk(truth)
    view = next(Tour(seed=SEED, width=42, height=28).views())
    assert film.images.shape == (FRAMES, 3, 28, 42)
    assert torch.allclose(film.images[0], view.image, atol=0.5 / 255 + 1e-6)
    assert torch.equal(film.truth.depth[0], view.depth)
    assert torch.allclose(film.intrinsics, view.intrinsics)


def test_truth_in_another_world_and_unit_has_no_error(truth: Take, moved: Take) -> None:
    quality = score_take(moved, read_walk(truth), seed=SEED, watched_s=1.0)
    assert quality.score.ate_share == pytest.approx(0, abs=1e-6)
    assert quality.score.depth_abs_rel == pytest.approx(0, abs=1e-5)
    assert quality.fov_deg == pytest.approx(0, abs=1e-3)
    assert quality.baselines.mean_depth_abs_rel > 0.05


def test_report_has_the_true_way_where_the_result_is_and_figures_beside_baselines(truth: Take, moved: Take) -> None:
    film = read_walk(truth)
    told = truth_for_report(moved, film, score_take(moved, film, seed=SEED, watched_s=1.0))
    assert np.allclose(told.centres, moved.trajectory.world_from_camera[:, :3, 3].numpy(), atol=1e-5)
    assert f"house {SEED}" in told.about
    assert told.figures[-1].result == "1, 1 is right"
    beside = {figure.name: figure.baseline for figure in told.figures}
    assert (beside["Error of the way (ATE), of its length"] or "").startswith("constant velocity")
    assert (beside["Depth, mean relative error (AbsRel)"] or "").startswith("mean depth")


def test_result_that_lacks_frames_is_refused(truth: Take, write_walk: Callable[..., Take]) -> None:
    with pytest.raises(InputError, match=r"a result for each of 12 frames, but .* has 5"):
        score_take(write_walk(RESULT_FROM_TRUTH, 5), read_walk(truth), seed=SEED, watched_s=1.0)
