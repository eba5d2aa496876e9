"""Addresses as they are printed and written: without user, password and query, which may hold secrets."""

import hashlib
import re

_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{1,30}:/+)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = re.compile(r"[^:]*(:\d*)?|\[[^]]*\](:\d*)?")


def shown_address(text: str) -> str:
    """A source as it is shown: an address has lost what may be secret, paths and other sources stay as they are."""
    return _ADDRESS.sub(lambda found: found["scheme"] + re.split("[?#]", _without_user(found["rest"]))[0], text)


def address_digest(url: str) -> str:
    """By which the record of a run tells addresses apart that are shown alike; users and passwords do not count."""
    found = _ADDRESS.fullmatch(url)
    known = url if found is None else found["scheme"] + _without_user(found["rest"])
    return hashlib.sha256(known.encode(errors="surrogatepass")).hexdigest()


def _without_user(rest: str) -> str:
    """What follows the scheme, from the host on."""
    found = _AUTHORITY.match(rest)
    assert found is not None
    authority = found[0]
    if "@" in authority:
        return authority.rpartition("@")[2] + rest[len(authority) :]
    if _HOST.fullmatch(authority):
        return rest
    # a password in which one of /?# should have been escaped, or one without a host
    return rest.rpartition("@")[2] if "@" in rest else authority.partition(":")[0]
