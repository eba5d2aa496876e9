"""Fetches the Castle-simu sequence of Debian's visp-images-data (GPL-2) for `make test-extra`; run with a folder."""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

PACKAGE = "visp-images-data"
URL = "http://deb.debian.org/debian/pool/main/v/visp-images/visp-images-data_3.5.0-1_all.deb"
SHA256 = "8d78de2b5d0ff5536ae5c281b11a5011fd6e95cd717c2e0ebf38bacf57723a9d"
SEQUENCE = "/mbt-depth/Castle-simu/"
TIMEOUT_S = 60


def fetch_by_apt() -> bytes | None:
    """The package from the machine's own mirror, whose signature apt checks; needs neither root nor installing."""
    if shutil.which("apt-get") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, check=False, timeout=10 * TIMEOUT_S
        )
        packages = list(Path(folder).glob("*.deb"))
        return packages[0].read_bytes() if done.returncode == 0 and packages else None


def fetch_by_url() -> bytes:
    """The package from Debian itself, for machines without apt or without its lists."""
    with urllib.request.urlopen(URL, timeout=TIMEOUT_S) as answer:
        package: bytes = answer.read()
    if hashlib.sha256(package).hexdigest() != SHA256:
        raise OSError(f"{URL} is not the file it was")
    return package


def files_of(package: bytes) -> bytes:
    """The tar archive within a Debian package, which is an `ar` archive: 60 bytes of header before each member."""
    place = len(b"!<arch>\n")
    while place < len(package):
        name, length = package[place : place + 16].strip(), int(package[place + 48 : place + 58])
        place += 60
        if name.startswith(b"data.tar"):
            return package[place : place + length]
        place += length + length % 2
    raise OSError("the package holds no files")


def extract(package: bytes, target: Path) -> None:
    """The sequence alone, in a folder that is complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        with tarfile.open(fileobj=io.BytesIO(files_of(package))) as archive:
            archive.extractall(folder, [member for member in archive if SEQUENCE in member.name], filter="data")
        next(Path(folder).rglob(SEQUENCE.strip("/"))).rename(target)


def main(target: Path) -> None:
    if target.is_dir():
        return
    try:
        extract(fetch_by_apt() or fetch_by_url(), target)
    except OSError as error:
        sys.exit(f"Castle-simu could not be fetched ({error}); its test will be skipped.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
