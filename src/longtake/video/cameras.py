"""Cameras at this machine, by number or by device."""

import re
import sys

import av

from longtake.errors import InputError
from longtake.video.decoding import Address
from longtake.video.reading import EVERY_FRAME
from longtake.video.sampling import FrameSampling
from longtake.video.streams import LiveStream
from longtake.video.timeouts import DEFAULT_TIMEOUTS, StreamTimeouts


def open_camera(
    text: str, sampling: FrameSampling = EVERY_FRAME, *, threads: int = 0, timeouts: StreamTimeouts = DEFAULT_TIMEOUTS
) -> LiveStream:
    """The camera of a number, `camera:0`, or of a device, `/dev/video0`."""
    return LiveStream(camera_address(text, timeouts=timeouts), sampling, threads=threads, timeouts=timeouts)


def camera_address(text: str, *, platform: str = sys.platform, timeouts: StreamTimeouts = DEFAULT_TIMEOUTS) -> Address:
    """What PyAV opens for `camera:0`, or on Linux for a device such as `/dev/video0`."""
    match = re.fullmatch("(?:camera:|/dev/video)([0-9]+)", text)
    if match is None:
        raise InputError(f"Expected a camera by its number, such as camera:0, but got '{text}'.")
    url, format_, options = _device(int(match[1]), platform)
    return Address(
        url=url,
        name=text,
        format=format_,
        options=options,
        open_timeout_s=timeouts.open_timeout_s,
        read_timeout_s=timeouts.read_timeout_s,
    )


def _device(number: int, platform: str) -> tuple[str, str, dict[str, str]]:
    """What the system calls a camera, which of FFmpeg's readers knows it, and what that has to be told."""
    match platform:
        case "linux":
            return f"/dev/video{number}", "v4l2", {}
        case "darwin":
            return f"{number}:none", "avfoundation", {"framerate": "30"}
        case "win32":
            return f"video={_windows_camera(number)}", "dshow", {}
    raise InputError(f"Cameras are known on Linux, macOS and Windows, but not on {platform}; name a stream instead.")


def _windows_camera(number: int) -> str:
    names = [device.name for device in av.enumerate_input_devices("dshow") if "video" in device.media_types]
    if number >= len(names):
        raise InputError(f"Expected a camera number below {len(names)}, the cameras there are, but got {number}.")
    return names[number]
