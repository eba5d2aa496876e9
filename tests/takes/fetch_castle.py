"""Fetches the Castle-simu sequence of Debian's visp-images-data (GPL-2) for `make test-extra`; run with a folder."""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "visp-images-data"
SEQUENCE = "/mbt-depth/Castle-simu/"
TIMEOUT_S = 60


def fetch_by_apt() -> bytes:
    """The package from the machine's own mirror, whose signature apt checks; needs neither root nor installing."""
    if shutil.which("apt-get") is None:
        raise OSError("there is no apt-get")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, check=False, timeout=10 * TIMEOUT_S
        )
        packages = list(Path(folder).glob("*.deb"))
        if done.returncode != 0 or not packages:
            raise OSError("apt-get did not find it; run apt-get update")
        return packages[0].read_bytes()


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
        extract(fetch_by_apt(), target)
    except OSError as error:
        sys.exit(f"Castle-simu could not be fetched ({error}); its test will be skipped.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
