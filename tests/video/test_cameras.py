"""Cameras by number on every system, and a camera that stutters, played by a file."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest
from av.container import InputContainer

from longtake.errors import InputError
from longtake.video import cameras, decoding
from longtake.video.cameras import camera_address
from longtake.video.decoding import Address, retry_demux
from longtake.video.streams import LiveStream
from longtake.video.timeouts import StreamTimeouts

QUICK = StreamTimeouts(first_pause_s=0.02, longest_pause_s=0.1, max_silence_s=0.5)


def test_camera_has_a_name_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert camera_address("camera:2", platform="linux").url == "/dev/video2"
    assert camera_address("/dev/video12", platform="linux").url == "/dev/video12"
    assert camera_address("camera:0", platform="linux").format == "v4l2"
    assert camera_address("camera:1", platform="darwin").url == "1:none"
    assert camera_address("camera:1", platform="darwin").format == "avfoundation"
    found = [
        av.DeviceInfo("Mic", "Mic", False, ["audio"]),
        av.DeviceInfo("Front", "Front", True, ["video"]),
        av.DeviceInfo("Back", "Back", False, ["video", "audio"]),
    ]
    monkeypatch.setattr(cameras.av, "enumerate_input_devices", lambda name: found if name == "dshow" else [])
    assert camera_address("camera:1", platform="win32").url == "video=Back"
    assert camera_address("camera:1", platform="win32").format == "dshow"
    with pytest.raises(InputError, match="Expected a camera number below 2, the cameras there are, but got 2"):
        camera_address("camera:2", platform="win32")


@pytest.mark.parametrize("text", ["camera:", "camera:x", "camera:-1", "camera:1.5", "/dev/video", "/dev/videox"])
def test_cameras_without_a_number_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"Expected a camera by its number, such as camera:0, but got '{text}'"):
        camera_address(text)


def test_unknown_system_is_told() -> None:
    with pytest.raises(InputError, match="but not on plan9; name a stream instead"):
        camera_address("camera:0", platform="plan9")


@pytest.mark.skipif(Path("/dev/video63").exists(), reason="there is such a camera")
def test_camera_that_is_not_there_is_refused_at_once() -> None:
    source = LiveStream(camera_address("/dev/video63", platform="linux"))
    assert source.is_live
    with pytest.raises(InputError, match=r"Expected a video from /dev/video63, but got none \(No such file"):
        list(source.frames())


class Unplugged(Address):
    """A camera that plays a film, is gone for two tries, and comes back."""

    tries = 0

    def open(self) -> InputContainer:
        Unplugged.tries += 1
        if Unplugged.tries in (2, 3):
            raise av.OSError(19, "No such device")
        return super().open()


def test_camera_that_was_unplugged_is_taken_up_again(
    tmp_path: Path, film: Callable[..., Path], drawn: Callable[..., np.ndarray]
) -> None:
    path = film(tmp_path / "film.mkv", [drawn(number) for number in range(5)])
    Unplugged.tries = 0
    source = LiveStream(Unplugged(url=str(path), name="camera:0"), timeouts=QUICK)
    frames = source.frames()
    seen = list(islice(frames, 9))
    frames.close()
    assert [frame.image is not None for frame in seen] == [True] * 5 + [False] + [True] * 3
    assert re.fullmatch(r"camera:0 broke off and was reconnected after 0\.\d s\.", seen[5].problem)
    assert Unplugged.tries == 4


def test_camera_without_a_new_picture_is_asked_again(
    tmp_path: Path, film: Callable[..., Path], drawn: Callable[..., np.ndarray]
) -> None:
    path = film(tmp_path / "film.mkv", [drawn(number) for number in range(7)])
    with av.open(str(path)) as container:
        packets = container.demux(video=0)

        def demux() -> Iterator[av.Packet]:
            for number, packet in enumerate(packets, start=1):
                yield packet
                if number == 2:
                    raise av.BlockingIOError(11, "Resource temporarily unavailable")

        assert len(list(retry_demux(demux))) == 7 + 1  # the last one flushes the decoder


def test_camera_that_never_has_a_picture_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_LONGEST_WAIT_S", 0.1)

    def demux() -> Iterator[av.Packet]:
        raise av.BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.raises(av.BlockingIOError):
        list(retry_demux(demux))
