"""What sessions may take of the disk, measured seldom and added up in between."""

import pytest

from longtake.server.problems import RequestError
from longtake.server.quota import Quota


def test_what_is_written_adds_up_until_it_is_measured_anew() -> None:
    now_s, measured = [0.0], []

    def measure() -> int:
        measured.append(now_s[0])
        return 40

    quota = Quota(100, measure, clock=lambda: now_s[0])
    assert quota.take(30)
    assert quota.take(30)
    assert measured == [0.0]
    assert quota.take(1)  # by what was added up there is no room, but some of it is gone
    assert measured == [0.0, 0.0]
    now_s[0] = 31.0
    assert quota.take(1)
    assert measured == [0.0, 0.0, 31.0]
    assert not quota.take(61)
    assert quota.take(59)


def test_what_has_no_room_is_refused_with_what_is_taken() -> None:
    quota = Quota(1000, lambda: 400)
    quota.require(600)
    with pytest.raises(RequestError, match="but 400 bytes of") as refused:
        quota.require(601)
    assert refused.value.status == 429
    with pytest.raises(RequestError, match="ask for less"):
        quota.require(1001)  # no session that is closed makes room for it
