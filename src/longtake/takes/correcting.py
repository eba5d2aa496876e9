"""Moves the frames of a finished take.

poses_online.tum   poses as they were said while the video ran, kept
corrections.json   what became of them
poses.tum          what is known: the two together
"""

from dataclasses import replace
from pathlib import Path

import torch

from longtake.errors import InputError
from longtake.takes.atomic_files import replace_file, writing
from longtake.takes.corrections import Corrections, restore_online, sha256_of_lines
from longtake.takes.fields import content_of
from longtake.takes.header import CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME, read_header
from longtake.takes.take import Take, read_take
from longtake.takes.tum import as_written, tum_line


def corrected(take: Take, corrections: Corrections) -> Take:
    """A take of poses as they were said, as it is known; nothing is written."""
    poses = [
        as_written(corrections.of_pose(record.index, pose))
        for record, pose in zip(take.records, take.trajectory.world_from_camera, strict=True)
    ]
    trajectory = replace(take.trajectory, world_from_camera=torch.stack(poses))
    return replace(take, trajectory=trajectory, corrections=corrections)


def correct_take(folder: Path, corrections: Corrections) -> Take:
    """The take with its frames moved from where they were said to be, whatever corrected them before.

    Broken off anywhere, it can be done again; until the end the take is read as it was before, or not at all.
    """
    if read_header(folder).num_frames is None:
        raise InputError(f"Expected a finished take in {folder} to correct, but it is still written, or was killed.")
    restore_online(folder)
    known = corrected(read_take(folder), corrections)
    with writing(f"The take {folder}"):
        replace_file(folder / ONLINE_POSES_NAME, content_of(folder / POSES_NAME))
        lines = [
            tum_line(record.timestamp_s, pose).encode()
            for record, pose in zip(known.records, known.trajectory.world_from_camera, strict=True)
        ]
        replace_file(folder / POSES_NAME, b"".join(line + b"\n" for line in lines))
        theirs = replace(corrections, poses_sha256=sha256_of_lines(lines))
        replace_file(folder / CORRECTIONS_NAME, theirs.content())
    return read_take(folder)
