"""A hub on this machine, as far as reading a model's headers needs one."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Hub(BaseHTTPRequestHandler):
    folder: Path
    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.asked.append(self.path)
        if "slow/" in self.path:
            time.sleep(20)
        if "none/" in self.path:
            self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})
        elif "gated/" in self.path:
            self._send(403, b"{}", body, {"X-Error-Code": "GatedRepo"})
        elif self.path.startswith("/api/models/"):
            names = [{"rfilename": p.name} for p in sorted(self.folder.iterdir())]
            info = {"id": "some/model", "sha": COMMIT, "siblings": names}
            self._send(200, json.dumps(info).encode(), body, {})
        else:
            file = self.folder / self.path.rsplit("/", 1)[-1]
            if not file.is_file():
                self._send(404, b"{}", body, {"X-Error-Code": "EntryNotFound"})
            else:
                self._file(file.read_bytes(), body)

    def _file(self, data: bytes, body: bool) -> None:
        headers = {"X-Repo-Commit": COMMIT, "ETag": '"x"', "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self._send(200, data, body, headers)
            return
        first, last = int(part[1]), int(part[2] or len(data) - 1)
        last = min(last, len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._send(206, data[first : last + 1], body, headers)

    def _send(self, status: int, data: bytes, body: bool, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)
        except OSError:  # whoever asked has gone
            pass


@contextmanager
def hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder as a model; yield the address and the list of what is asked."""
    asked: list[str] = []
    handler = type("Hub", (_Hub,), {"folder": folder, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
