"""Install the packages that loaderx is compared with, each to a folder of its own.

``python -m tests.peers DIR`` fills DIR; the tests find it through ``LOADERX_TEST_PEERS=DIR``. A peer never enters
the environment of the tests: it is imported in a subprocess whose path starts with its folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PEERS_VARIABLE = "LOADERX_TEST_PEERS"


@dataclass(frozen=True)
class Peer:
    """A package to compare with: its folder's name, what pip installs there, and a module that proves it is there."""

    name: str
    requirements: tuple[str, ...]
    module: str


PEERS = {
    peer.name: peer
    for peer in (
        # its metadata leaves cffi and numpy to the environment, which the peer must not share with the tests
        Peer("loaderx-0.7.3", ("loaderx==0.7.3", "cffi", "numpy"), "loaderx"),
        Peer("data-forager", ("data-forager==0.2.0",), "data_forager"),
        Peer("datasets", ("datasets==5.2.0",), "datasets"),
        Peer("webdataset", ("webdataset==1.0.2",), "webdataset"),
    )
}


def find_peer(name: str) -> Path | None:
    """Return the folder of a peer, or None when ``LOADERX_TEST_PEERS`` does not lead to one."""
    root = os.environ.get(PEERS_VARIABLE)
    if not root:
        return None
    folder = Path(root).absolute() / name
    return folder if (folder / PEERS[name].module).is_dir() else None


def install_peer(peer: Peer, root: Path) -> Path:
    """Install a peer to ``root/<name>``; a folder half filled by a failed pip never gets that name."""
    target = root / peer.name
    if (target / peer.module).is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{peer.name}.") as scratch:
        filled = Path(scratch) / "filled"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--only-binary", ":all:", "--target", str(filled), *peer.requirements]
        subprocess.run(command, check=True)
        shutil.rmtree(target, ignore_errors=True)
        filled.rename(target)
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Install every peer, or those named, and print where each is."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, metavar="DIR", help="the folder to fill")
    parser.add_argument("names", nargs="*", metavar="PEER", help=f"of {', '.join(PEERS)}; all by default")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    for name in options.names or PEERS:
        print(f"{name}: {install_peer(PEERS[name], options.root)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
