import pytest

from longtake.errors import LongtakeError
from longtake.video.addresses import address_digest, shown_address
from longtake.video.source import SourceOptions, open_source
from longtake.video.timeouts import StreamTimeouts

SHOWN = {
    "rtsp://user:secret@host:554/cam?token=secret#secret": "rtsp://host:554/cam",
    "rtsp://user:p@secret@host/cam": "rtsp://host/cam",
    "rtsp://user:se/secret@host/cam": "rtsp://host/cam",
    "rtsp://user:s?secret@host/cam": "rtsp://host/cam",
    "rtsp://user:s secret@host/cam": "rtsp://host/cam",
    "rtsp://user:secret": "rtsp://user",
    "http://[::1]:80/@me/film.mp4?key=secret": "http://[::1]:80/@me/film.mp4",
    "HTTPS://host/film.mp4": "HTTPS://host/film.mp4",
    "rtsp:/user:secret@host/cam": "rtsp:/host/cam",
    "world:9?frames=60&size=56x42": "world:9?frames=60&size=56x42",
    "walk@home/why?.mp4": "walk@home/why?.mp4",
    "C:/me@home/why?.mp4": "C:/me@home/why?.mp4",
}


@pytest.mark.parametrize("given", SHOWN)
def test_addresses_are_shown_without_user_password_and_query(given: str) -> None:
    assert shown_address(given) == SHOWN[given]
    assert shown_address(SHOWN[given]) == SHOWN[given]


def test_digest_tells_queries_apart_and_forgets_who_asked() -> None:
    same = {address_digest(f"http://{user}host/film?id=1") for user in ("", "user:secret@", "other:word@")}
    assert len(same) == 1
    assert address_digest("http://host/film?id=2") not in same


@pytest.mark.parametrize(
    "text",
    [
        "rtps://user:secret@host/cam?token=secret",
        " rtsp://user:secret@host/cam?token=secret",
        "rtsp://[user:secret@host/cam?token=secret",
        "http://user:secret@ho℀st/cam?token=secret",
        f"rtps://user:secret@host/{'x' * 5000}?token=secret",
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_what_cannot_be_opened_is_named_without_secrets(text: str, *, follow: bool) -> None:
    with pytest.raises(LongtakeError) as refused:
        open_source(text, options=SourceOptions(follow=follow))
    require_no_secrets(refused.value)


@pytest.mark.timeout(20)  # it took minutes, by the square of its length
def test_a_text_of_any_length_is_shown_at_once() -> None:
    text = "a" * 300_000
    assert shown_address(text) == text
    assert shown_address(f"{text}://user:secret@host/x") == f"{text}://host/x"


@pytest.mark.parametrize("scheme", ["http", "rtsp"])
def test_what_does_not_answer_is_named_without_secrets(scheme: str) -> None:
    source = open_source(
        f"{scheme}://user:secret@127.0.0.1:9/film?token=secret",
        options=SourceOptions(timeouts=StreamTimeouts(open_timeout_s=1.0, first_pause_s=0.01, max_silence_s=0.05)),
    )
    assert source.name == f"{scheme}://127.0.0.1:9/film"
    with pytest.raises(LongtakeError) as refused:
        next(source.frames())
    require_no_secrets(refused.value)


def require_no_secrets(error: BaseException) -> None:
    """In all that is shown of an error that nobody handles, causes included, but for our own source lines."""
    shown: BaseException | None = error
    while shown is not None:
        assert "secret" not in str(shown)
        assert "user" not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__context__
