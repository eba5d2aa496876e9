"""Many videos mapped, each into a folder of its own: what `longtake batch` does, for programs."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longtake.batch.driver import Batch, BatchSummary
from longtake.batch.gpus import environments, share_of_gpu
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.pool import Pool
from longtake.batch.ray_pool import RayPool, is_ray
from longtake.batch.storage import FolderStorage, open_storage
from longtake.errors import SettingError

LOCAL = "local"


def open_batch(
    videos: str | Path | Iterable[str | Path | Mapping[str, object]],
    out: str | Path,
    *,
    jobs: int | None = None,
    on: str = LOCAL,
    threads: int = 1,
    per_gpu: int = 1,
    spans: int = 1,
    tries: int = 3,
    scratch: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Batch:
    """A batch that is about to begin; iterate to do it."""
    for name, number in {"jobs": 1 if jobs is None else jobs, "threads": threads, "per_gpu": per_gpu}.items():
        _require_positive(name, number)
    _require_positive("spans", spans)
    _require_positive("tries", tries)
    if on != LOCAL and not is_ray(on):
        raise SettingError(f"Expected on as {LOCAL}, ray or ray://HOST:PORT, but got '{on}'.")
    storage = open_storage(out, None if scratch is None else Path(scratch))
    apart_from = storage.path if isinstance(storage, FolderStorage) else None
    manifest = open_manifest(videos, settings, spans=spans, apart_from=apart_from)
    device = str((settings or {}).get("device", "auto"))
    pool: Pool
    if is_ray(on):
        pool = RayPool(on, jobs, threads=threads, gpus_each=share_of_gpu(device, per_gpu, of_cluster=True))
    else:
        gpus = environments(device)
        most = len(gpus) * per_gpu if share_of_gpu(device, per_gpu) else max(1, (os.cpu_count() or 1) // threads)
        pool = LocalPool(min(jobs or most, len(manifest) * spans), threads=threads, environments=gpus)
    return Batch(manifest, storage, pool, tries=tries)


def map_many(
    videos: str | Path | Iterable[str | Path | Mapping[str, object]],
    out: str | Path = "out/batch",
    *,
    jobs: int | None = None,
    on: str = LOCAL,
    threads: int = 1,
    per_gpu: int = 1,
    spans: int = 1,
    tries: int = 3,
    scratch: str | Path | None = None,
    **settings: Any,
) -> BatchSummary:
    """Map many videos, each into a folder of its own below `out`; run again, it does what is missing.

        summary = longtake.map_many("videos", out="mapped", jobs=4, fps=5)
        summary = longtake.map_many([{"source": "a.mp4", "fps": 2}, {"source": "b.mp4"}], out="mapped")
        print(summary.done, summary.failed, summary.table)

    `videos` is a folder or tree of them, a glob, a list as .txt, .csv or .parquet, or an iterable of sources or rows.
    Other keywords are those of `longtake.map`, for all rows that say nothing else. Videos that fail are set aside: the
    table has why. `on="ray"` works on a Ray cluster of this machine, `on="ray://HOST:PORT"` on a running one.
    """
    batch = open_batch(
        videos,
        out,
        jobs=jobs,
        on=on,
        threads=threads,
        per_gpu=per_gpu,
        spans=spans,
        tries=tries,
        scratch=scratch,
        settings=settings,
    )
    for _ in batch:
        pass
    assert batch.summary is not None
    return batch.summary


def _require_positive(name: str, number: int) -> None:
    if number < 1:
        raise SettingError(f"Expected {name} as a whole number from 1, but got {number}.")
