"""The world on a GPU; left out where there is none."""

from itertools import islice

import numpy as np
import pytest
import torch

from longtake.world.house import build_house
from longtake.world.render import Cameras, Pictures, render
from longtake.world.scene import Scene
from longtake.world.tour import Tour
from longtake.world.walk import walk

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

HEIGHT, WIDTH, FRAMES = 98, 126, 12
SEEDS = (0, 4, 7)


def pictures_on(device: str, *, fuse: bool = False) -> Pictures:
    houses = [build_house(seed) for seed in SEEDS]
    poses = np.stack([[step.world_from_camera for step in islice(walk(h, h.seed), FRAMES)] for h in houses])
    intrinsics = Tour(seed=0, width=WIDTH, height=HEIGHT).intrinsics().to(device)
    cameras = Cameras(
        world_from_camera=torch.from_numpy(poses).float().to(device),
        intrinsics=intrinsics.expand(len(SEEDS), FRAMES, 3, 3),
        height=HEIGHT,
        width=WIDTH,
    )
    return render(Scene.of(houses, device), cameras, fuse=fuse)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's compiler warns of torch's own code
@pytest.mark.parametrize("fuse", [False, True])
def test_a_gpu_sees_what_a_processor_sees_but_for_rounding(fuse: bool) -> None:
    """Rounding may decide which of two surfaces a ray along an edge meets, so a few pixels in 10,000 may differ."""
    here, there = pictures_on("cpu"), pictures_on("cuda", fuse=fuse)
    apart = (here.depth - there.depth.cpu()).abs() / here.depth
    assert (apart > 1e-4).float().mean() < 1e-3
    assert (here.thing != there.thing.cpu()).float().mean() < 1e-3
    colour = (here.image - there.image.cpu()).abs().amax(dim=2)
    assert colour.median() < 1e-5
    assert (colour > 0.01).float().mean() < 1e-3
