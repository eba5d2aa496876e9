"""Solutions and keys have the same bits in another process, with other numbers of threads."""

import os
import subprocess
import sys

_PRINTED = """
import hashlib
import numpy as np
from walked_graph import walked_graph
from longtake.places.solver import Solving
from longtake.places.whitening import Whitening
by_loops, by_nodes = (
    Solving.of(walked_graph(8, nodes=120, loops=loops, wrong=0.2, drift=1.5).graph).solved().strain
    for loops in (60, 125)
)
descriptors = np.cumsum(np.random.default_rng(0).normal(size=(1500, 144)), axis=0).astype(np.float16)
whitening = Whitening.of(descriptors)
for array in (by_loops, by_nodes, whitening.factor, whitening.keys(descriptors)):
    print(hashlib.sha256(array.tobytes()).hexdigest())
"""


def test_bits_are_the_same_in_another_process_with_more_threads() -> None:
    found = set()
    for threads in ("1", "2"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", _PRINTED], env=environment, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1
    assert len(set(found.pop().split())) == 4
