"""The world on a GPU; left out where there is none."""

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

# In a process of its own: torch's compiler cannot look through the checks of types that tests add to functions.
COMPARE = """
import json, sys
from itertools import islice
import numpy as np, torch
from longtake.world.house import build_house
from longtake.world.render import Cameras, render
from longtake.world.scene import Scene
from longtake.world.tour import Tour
from longtake.world.walk import walk

def pictures_on(device, fuse):
    houses = [build_house(seed) for seed in (0, 4, 7)]
    poses = np.stack([[step.world_from_camera for step in islice(walk(h, h.seed), 12)] for h in houses])
    cameras = Cameras(
        world_from_camera=torch.from_numpy(poses).float().to(device),
        intrinsics=Tour(seed=0, width=126, height=98).intrinsics().to(device).expand(3, 12, 3, 3),
        height=98,
        width=126,
    )
    return render(Scene.of(houses, device), cameras, fuse=fuse)

here, there = pictures_on("cpu", False), pictures_on("cuda", sys.argv[1] == "fuse")
colour = (here.image - there.image.cpu()).abs().amax(dim=2)
print(json.dumps({
    "depth": float(((here.depth - there.depth.cpu()).abs() > 1e-4 * here.depth).float().mean()),
    "thing": float((here.thing != there.thing.cpu()).float().mean()),
    "colour": float((colour > 0.01).float().mean()),
    "usual_colour": float(colour.median()),
}))
"""


@pytest.mark.parametrize("how", ["step by step", "fuse"])
def test_a_gpu_sees_what_a_processor_sees_but_for_rounding(how: str) -> None:
    """Rounding may decide which of two surfaces a ray along an edge meets, so a few pixels in 10,000 may differ."""
    done = subprocess.run([sys.executable, "-c", COMPARE, how], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differing = json.loads(done.stdout)
    assert differing["usual_colour"] < 1e-5
    assert max(differing["depth"], differing["thing"], differing["colour"]) < 1e-3
