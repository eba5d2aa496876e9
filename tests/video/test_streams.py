"""Streams over real connections: broken off, taken up again, given up in time; and files on servers."""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from longtake.errors import InputError, SettingError
from longtake.video.files import VideoFile
from longtake.video.frame import VideoFrame
from longtake.video.streams import LiveStream, open_stream
from longtake.video.timeouts import StreamTimeouts

QUICK = StreamTimeouts(
    open_timeout_s=1.0, read_timeout_s=1.0, first_pause_s=0.05, longest_pause_s=0.2, max_silence_s=0.8
)
NUM_FRAMES = 20
Film = Callable[..., Path]
Drawn = Callable[..., np.ndarray]
NumberIn = Callable[[np.ndarray], int]
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers each request to come with the next entry of `answers`, the last of them again and again."""

    daemon_threads = True
    answers: list[Answer]
    num_requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/film"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.server.num_requests += 1
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        try:
            answer(self)
        except OSError:
            """The reader hung up."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def live(data: bytes) -> Answer:
    """Bytes without a length: nobody knows where they end."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def hanging(data: bytes, seconds: float) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        live(data)(handler)
        handler.wfile.flush()
        time.sleep(seconds)

    return answer


def refusing(code: int) -> Answer:
    return lambda handler: handler.send_error(code)


def file_of(data: bytes, *, sends: int, ranges: bool) -> Answer:
    """A file of known length, of which so many bytes are sent; some servers can begin in the middle."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        wanted = re.match(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        first = int(wanted[1]) if wanted and ranges else 0
        handler.send_response(206 if ranges else 200)
        if ranges:
            handler.send_header("Accept-Ranges", "bytes")
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - first))
        handler.end_headers()
        handler.wfile.write(data[first:][:sends])

    return answer


@pytest.fixture(scope="module")
def transport_stream(tmp_path_factory: pytest.TempPathFactory, film: Film, drawn: Drawn) -> bytes:
    path = tmp_path_factory.mktemp("stream") / "film.ts"
    pictures = [drawn(number) for number in range(NUM_FRAMES)]
    options = {"g": "5", "tune": "zerolatency", "crf": "10"}
    return film(path, pictures, codec="libx264", pixels="yuv420p", options=options).read_bytes()


@pytest.fixture(scope="module")
def mp4(tmp_path_factory: pytest.TempPathFactory, film: Film, drawn: Drawn) -> bytes:
    path = tmp_path_factory.mktemp("file") / "film.mp4"
    pictures = [drawn(number) for number in range(NUM_FRAMES)]
    return film(path, pictures, container={"movflags": "faststart"}).read_bytes()


def kinds(frames: list[VideoFrame]) -> str:
    """A letter for each frame: a picture, or a gap."""
    return "".join("g" if frame.image is None else "p" for frame in frames)


def test_stream_that_is_cut_off_is_taken_up_again(server: Server, transport_stream: bytes, number_in: NumberIn) -> None:
    half = len(transport_stream) // 2 // 188 * 188
    server.answers = [live(transport_stream[:half]), live(transport_stream)]
    source = open_stream(server.url, timeouts=QUICK)
    assert isinstance(source, LiveStream)
    assert source.is_live
    assert source.num_frames is None
    frames = source.frames()
    seen = list(islice(frames, NUM_FRAMES + 12))
    frames.close()
    assert re.match("p{5,}g{1,2}p{10,}", kinds(seen))  # the frame in which it was cut may be told too
    gap = kinds(seen).index("gp")
    assert re.search(r"broke off and was reconnected after \d\.\d s\.$", seen[gap].problem)
    assert number_in(seen[0].image) == 0
    assert number_in(seen[gap + 1].image) == 0  # the server begins anew
    assert [frame.index for frame in seen] == list(range(len(seen)))
    assert all(earlier.timestamp_s < later.timestamp_s for earlier, later in pairwise(seen))
    assert seen[gap].timestamp_s - seen[gap - 1].timestamp_s > QUICK.first_pause_s / 2


def test_times_of_a_stream_are_those_of_arrival(server: Server, transport_stream: bytes) -> None:
    half = len(transport_stream) // 2 // 188 * 188

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        live(transport_stream[:half])(handler)
        time.sleep(0.6)
        handler.wfile.write(transport_stream[half:])

    server.answers = [live(b""), slowly]
    frames = open_stream(server.url, timeouts=QUICK).frames()
    seen = list(islice(frames, NUM_FRAMES - 4))
    frames.close()
    steps_s = [later.timestamp_s - earlier.timestamp_s for earlier, later in pairwise(seen)]
    assert seen[0].timestamp_s == 0
    assert 0.3 < max(steps_s) < 3
    assert sorted(steps_s)[-2] < 0.3


def test_stream_that_falls_silent_is_reopened_after_the_read_timeout(server: Server, transport_stream: bytes) -> None:
    timeouts = StreamTimeouts(open_timeout_s=1.0, read_timeout_s=0.3, first_pause_s=0.05, max_silence_s=10.0)
    server.answers = [live(b""), hanging(transport_stream, 3.0), live(transport_stream)]
    began_s = time.monotonic()
    frames = open_stream(server.url, timeouts=timeouts).frames()
    seen = list(islice(frames, NUM_FRAMES + 5))
    frames.close()
    assert "g" in kinds(seen)
    assert time.monotonic() - began_s < 2.5


def test_slow_reader_is_not_taken_for_a_silent_stream(server: Server, transport_stream: bytes) -> None:
    server.answers = [live(transport_stream)]
    frames = open_stream(server.url, timeouts=QUICK).frames()
    for _ in range(NUM_FRAMES - 2):
        next(frames)
    time.sleep(QUICK.max_silence_s + 0.3)
    assert "g" in kinds(list(islice(frames, 8)))
    frames.close()


def test_silent_stream_is_given_up(server: Server, transport_stream: bytes) -> None:
    server.answers = [live(b""), live(transport_stream), live(b"")]
    began_s = time.monotonic()
    seen: list[VideoFrame] = []
    with pytest.raises(
        InputError, match=r"pictures from http.*, but none came for \d s \(.*\); check that it is running"
    ):
        seen.extend(open_stream(server.url, timeouts=QUICK).frames())
    assert 0.8 < time.monotonic() - began_s < 4
    assert server.num_requests > 4


def test_pauses_between_tries_grow(server: Server) -> None:
    asked_s: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked_s.append(time.monotonic())
        live(b"")(handler)

    server.answers = [answer]
    timeouts = StreamTimeouts(first_pause_s=0.05, longest_pause_s=0.2, max_silence_s=0.9)
    with pytest.raises(InputError, match="none came for"):
        list(open_stream(server.url, timeouts=timeouts).frames())
    pauses_s = [later - earlier for earlier, later in pairwise(asked_s[1:])]
    assert all(pause_s > 0.9 * least_s for pause_s, least_s in zip(pauses_s, [0.05, 0.1, 0.2, 0.2], strict=False))
    assert sum(pauses_s) < 2


@pytest.mark.parametrize("code", [401, 403, 404])
def test_address_that_leads_nowhere_is_refused_at_once(server: Server, code: int) -> None:
    server.answers = [refusing(code)]
    began_s = time.monotonic()
    with pytest.raises(InputError, match=rf"Expected a video from {server.url}, but got none \(.*{code}.*\)"):
        list(open_stream(server.url, timeouts=StreamTimeouts()).frames())
    assert time.monotonic() - began_s < 2


def test_server_that_errs_for_a_while_is_waited_for(server: Server, transport_stream: bytes) -> None:
    server.answers = [refusing(503), refusing(503), refusing(503), live(transport_stream)]
    frames = open_stream(server.url, timeouts=QUICK).frames()
    assert kinds(list(islice(frames, 5))) == "ppppp"
    frames.close()


def test_nobody_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for scheme in ("http", "rtsp"):
        with pytest.raises(InputError, match=r"none came for \d s \(Connection refused\)"):
            list(open_stream(f"{scheme}://127.0.0.1:{port}/film", timeouts=QUICK).frames())


def test_server_that_never_answers_cannot_hold_us_forever() -> None:
    timeouts = StreamTimeouts(
        open_timeout_s=0.2, read_timeout_s=0.2, first_pause_s=0.05, longest_pause_s=0.1, max_silence_s=0.5
    )
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for scheme in ("http", "rtsp"):
            began_s = time.monotonic()
            with pytest.raises(InputError, match="none came for"):
                list(open_stream(f"{scheme}://127.0.0.1:{mute.getsockname()[1]}/film", timeouts=timeouts).frames())
            assert time.monotonic() - began_s < 4


def test_stopped_stream_ends_while_it_waits(server: Server) -> None:
    server.answers = [live(b"")]
    source = open_stream(server.url, timeouts=StreamTimeouts(first_pause_s=30.0, longest_pause_s=30.0))
    timer = threading.Timer(0.3, source.stop)
    timer.start()
    began_s = time.monotonic()
    assert list(source.frames()) == []
    assert time.monotonic() - began_s < 3
    timer.join()


def test_file_on_a_server_is_read_whole_at_its_own_times(server: Server, mp4: bytes, number_in: NumberIn) -> None:
    for ranges in (False, True):
        server.answers = [file_of(mp4, sends=len(mp4), ranges=ranges)]
        source = open_stream(server.url, timeouts=QUICK)
        assert isinstance(source, VideoFile)
        assert not source.is_live
        assert source.num_frames == NUM_FRAMES
        frames = list(source.frames())
        assert [number_in(frame.image) for frame in frames] == list(range(NUM_FRAMES))
        np.testing.assert_allclose([frame.timestamp_s for frame in frames], np.arange(NUM_FRAMES) / 30, atol=1e-4)


def test_address_is_opened_once(server: Server, mp4: bytes, transport_stream: bytes) -> None:
    for answer, is_live in ((file_of(mp4, sends=len(mp4), ranges=False), False), (live(transport_stream), True)):
        server.num_requests, server.answers = 0, [answer, refusing(404)]
        source = open_stream(server.url, timeouts=QUICK)
        assert source.is_live == is_live
        frames = source.frames()
        assert kinds(list(islice(frames, NUM_FRAMES - 2))) == "p" * (NUM_FRAMES - 2)
        assert server.num_requests == 1
        frames.close()


def test_address_that_never_answers_is_told_when_it_did_not_open_in_time() -> None:
    timeouts = StreamTimeouts(open_timeout_s=0.5)
    assert StreamTimeouts().open_timeout_s < 10
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_server(("127.0.0.1", 0)) as closed:
        mute_port, closed_port = mute.getsockname()[1], closed.getsockname()[1]
        closed.close()
        for address in (
            f"rtsp://127.0.0.1:{mute_port}",
            f"http://127.0.0.1:{mute_port}",
            f"rtsp://127.0.0.1:{closed_port}",
        ):
            began_s = time.monotonic()
            with pytest.raises(
                InputError, match=r"Expected pictures from .*, but none came for \d s .*; check that it is running"
            ):
                list(open_stream(f"{address}/film", timeouts=timeouts).frames())
            assert time.monotonic() - began_s < 1.5


def test_file_whose_server_does_not_know_its_length_is_a_file(server: Server, mp4: bytes) -> None:
    server.answers = [live(mp4)]
    source = open_stream(server.url, timeouts=QUICK)
    assert isinstance(source, VideoFile)
    assert kinds(list(source.frames())) == "p" * NUM_FRAMES


def test_file_on_a_server_goes_on_where_it_was_cut_off(server: Server, mp4: bytes, number_in: NumberIn) -> None:
    server.answers = [file_of(mp4, sends=len(mp4) // 2, ranges=True), file_of(mp4, sends=len(mp4), ranges=True)]
    source = open_stream(server.url, timeouts=QUICK)
    frames = list(source.frames())
    assert [number_in(frame.image) for frame in frames] == list(range(NUM_FRAMES))


def test_file_that_cannot_be_taken_up_again_says_that_it_is_cut_off(server: Server, mp4: bytes) -> None:
    server.answers = [file_of(mp4, sends=len(mp4) // 2, ranges=False)]
    frames = list(open_stream(server.url, timeouts=QUICK).frames())
    assert re.fullmatch("p+g+", kinds(frames))
    assert "missing" in frames[-1].problem


class RtspServer:
    """Plays a transport stream to one visitor after another, over the connection of the requests."""

    _SDP = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=film\r\nt=0 0\r\nm=video 0 RTP/AVP 33\r\na=control:track\r\n"

    def __init__(self, films: list[bytes]) -> None:
        self._films = films
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"rtsp://watcher:secret@127.0.0.1:{self._socket.getsockname()[1]}/film"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            with visitor, visitor.makefile("rwb") as lines:
                try:
                    self._talk(lines)
                except OSError:
                    """The visitor left."""

    def _talk(self, lines: object) -> None:
        while request := lines.readline().decode():
            fields = dict(line.split(": ", 1) for line in iter(lambda: lines.readline().decode().strip(), ""))
            method = request.split()[0]
            answer = f"RTSP/1.0 200 OK\r\nCSeq: {fields['CSeq']}\r\n"
            body = self._SDP if method == "DESCRIBE" else ""
            answer += {
                "OPTIONS": "Public: DESCRIBE, SETUP, PLAY, TEARDOWN\r\n",
                "DESCRIBE": f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n",
                "SETUP": "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n",
                "PLAY": "Session: 1\r\n",
            }.get(method, "")
            lines.write(f"{answer}\r\n{body}".encode())
            lines.flush()
            if method == "PLAY":
                self._play(lines, self._films.pop(0) if len(self._films) > 1 else self._films[0])
                return

    def _play(self, lines: object, film: bytes) -> None:
        size = 7 * 188
        for number, start in enumerate(range(0, len(film), size)):
            header = struct.pack(">BBHII", 0x80, 33, number, number * 3000, 1)
            packet = header + film[start : start + size]
            lines.write(struct.pack(">cBH", b"$", 0, len(packet)) + packet)
        lines.flush()


def test_rtsp_stream_that_is_cut_off_is_taken_up_again(transport_stream: bytes, number_in: NumberIn) -> None:
    half = len(transport_stream) // 2 // 188 * 188
    server = RtspServer([transport_stream[:half], transport_stream])
    try:
        source = open_stream(server.url, timeouts=QUICK)
        assert source.is_live
        assert "secret" not in source.name
        frames = source.frames()
        seen = list(islice(frames, NUM_FRAMES + 2))
        frames.close()
    finally:
        server.close()
    assert re.match("p{5,}g{1,2}p{5,}", kinds(seen))
    gap = kinds(seen).index("gp")
    assert "secret" not in seen[gap].problem
    assert "rtsp://127.0.0.1" in seen[gap].problem
    assert number_in(seen[gap + 1].image) == 0
    assert all(earlier.timestamp_s < later.timestamp_s for earlier, later in pairwise(seen))


def test_addresses_and_times_without_meaning_are_refused() -> None:
    with pytest.raises(InputError, match="Expected an address such as rtsp://host/path, but got 'http://\\[1'"):
        open_stream("http://[1")
    with pytest.raises(SettingError, match="Expected times greater than 0 s to wait for a stream"):
        StreamTimeouts(max_silence_s=0.0)
