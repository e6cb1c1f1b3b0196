"""A package index on the loopback interface that can misbehave in every way that matters."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Index:
    """What the index holds and how it behaves.

    Args:
        files: project -> file name -> bytes.
        listed: file names that pages leave out although they exist.
        cut_after: send so many bytes of a file's body, then close; None sends all.
        compresses: whether bodies are compressed for clients that accept it; ranges are then
            ranges of the compressed bytes, as HTTP has it.
        honours_range: whether a Range request is answered with 206.
        page_status: status of every project page.
        file_status: status of every file.
        page_type: content type of project pages.
        with_digests: whether pages say the SHA-256 of files.
        stall: send nothing for project pages until `released` is set.
        requests: (path, Range header) of every request.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    cut_after: int | None = None
    honours_range: bool = True
    compresses: bool = False
    page_status: int = 200
    file_status: int = 200
    page_type: str = "application/vnd.pypi.simple.v1+json"
    with_digests: bool = True
    stall: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def file_requests(self) -> list[str | None]:
        """The Range header of every request for a file."""
        return [wanted for path, wanted in self.requests if path.startswith("/files/")]


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve an index; its `url` is what PIP_INDEX_URL takes."""

    class Handler(_Handler):
        served = index

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.released.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Index
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        index = self.served
        index.requests.append((self.path, self.headers.get("Range")))
        parts = self.path.strip("/").split("/")
        if parts[0] == "simple" and len(parts) == 2:
            self._page(parts[1])
        elif parts[0] == "files" and len(parts) == 3:
            self._file(parts[1], parts[2])
        else:
            self._send(404, b"")

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _page(self, project: str) -> None:
        index = self.served
        if index.stall:
            index.released.wait(20)
        if index.page_status != 200:
            self._send(index.page_status, b"broken")
            return
        if project not in index.files:
            self._send(404, b"no such project")
            return
        files = [
            {
                "filename": name,
                "url": f"../../files/{project}/{name}",
                "hashes": {"sha256": hashlib.sha256(content).hexdigest()}
                if index.with_digests
                else {},
                "requires-python": ">=3.11",
            }
            for name, content in index.files[project].items()
            if name not in index.unlisted
        ]
        page = {"meta": {"api-version": "1.0"}, "name": project, "files": files}
        self._send(200, json.dumps(page).encode(), Content_Type=index.page_type)

    def _file(self, project: str, name: str) -> None:
        index = self.served
        content = index.files.get(project, {}).get(name)
        if content is None or index.file_status != 200:
            self._send(404 if content is None else index.file_status, b"broken")
            return
        headers = {}
        if index.compresses and "gzip" in self.headers.get("Accept-Encoding", ""):
            content, headers = gzip.compress(content), {"Content_Encoding": "gzip"}
        wanted = self.headers.get("Range")
        start, status = 0, 200
        if wanted and index.honours_range:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(content):
                self._send(416, b"")
                return
        body = content[start:]
        if index.cut_after is None:
            self._send(status, body, **headers)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: index.cut_after])
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)
