"""Health is one token of the model, whatever the front of the server says."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import rig.cli_cluster  # noqa: F401  (the command)
from rig.cli import app
from rig.errors import RigError
from rig.launch.supervise_health import HealthWatch, real_request

MODELS = {"data": [{"id": "tiny"}]}
CHOICE = {"choices": [{"text": "1"}]}


class FakeServer:
    """Answers as it is told: path -> (status, body); notes what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"/v1/models": (200, MODELS)}
        self.asked: list[tuple[str, Any, str | None]] = []
        self.delay_s = 0.0
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                fake.asked.append((self.path, body, self.headers.get("Authorization")))
                time.sleep(fake.delay_s)
                code, said = fake.answers.get(self.path, (404, {"detail": "Not Found"}))
                data = (said if isinstance(said, str) else json.dumps(said)).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # it did not wait
                    self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.http.shutdown()
    fake.http.server_close()


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_one_token_is_computed(server: FakeServer, suffix: str) -> None:
    server.answers["/v1/completions"] = (200, CHOICE)
    real_request(server.url + suffix)
    path, body, _ = server.asked[-1]
    assert path == "/v1/completions"
    assert body == {"model": "tiny", "prompt": "1", "max_tokens": 1, "temperature": 0}


def test_a_model_without_completions_is_asked_in_its_own_way(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (400, {"message": "not supported by this model"})
    server.answers["/v1/chat/completions"] = (200, CHOICE)
    real_request(server.url)
    server.answers["/v1/chat/completions"] = (404, {})
    server.answers["/v1/embeddings"] = (200, {"data": [{"embedding": [0.1]}]})
    real_request(server.url)


@pytest.mark.parametrize("path", ["/classify", "/pooling"])
def test_a_pooling_model_is_asked_in_its_own_way(server: FakeServer, path: str) -> None:
    server.answers[path] = (200, {"data": [{"probs": [1.0]}]})
    real_request(server.url)
    assert server.asked[-1][:2] == (path, {"model": "tiny", "input": "1"})


@pytest.mark.parametrize(
    "path, answer",
    [
        ("/v1/completions", (404, {"detail": "Not Found"})),  # it only transcribes, say
        ("/v1/completions", (400, {"message": "an image is needed"})),
        ("/v1/completions", (403, "no")),
        ("/v1/models", (401, {"error": "Unauthorized"})),
    ],
)
def test_a_server_that_takes_no_such_request_is_not_ill(
    server: FakeServer, path: str, answer: tuple[int, Any]
) -> None:
    server.answers[path] = answer
    watch = HealthWatch(lambda: real_request(server.url), every_s=0.01)
    watch.start()
    deadline = time.monotonic() + 10
    while not watch.unasked and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    watch.stop()
    assert watch.failures == (0, "")
    assert f"status {answer[0]}" in watch.unasked


def test_a_server_that_answered_once_and_then_takes_nothing_is_ill(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (200, CHOICE)
    watch = HealthWatch(lambda: real_request(server.url), every_s=0.01)
    watch.start()
    deadline = time.monotonic() + 10
    while len(server.asked) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    server.answers["/v1/models"] = (404, "gone")
    while watch.failures[0] < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.stop()
    assert watch.failures[0] >= 2
    assert not watch.unasked


def test_the_key_is_sent(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (200, CHOICE)
    real_request(server.url, api_key="secret")
    assert {key for _, _, key in server.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    "path, answer, said",
    [
        ("/v1/completions", (500, {"error": "EngineDeadError"}), "status 500.*EngineDeadError"),
        ("/v1/completions", (200, {"choices": []}), "status 200"),
        ("/v1/completions", (200, "garbage"), "status 200: garbage"),
        ("/v1/completions", (404, {"detail": "Not Found"}), "status 404"),
        ("/v1/models", (200, {"data": []}), "status 200"),
        ("/v1/models", (503, "starting"), "status 503: starting"),
    ],
)
def test_what_is_no_health(
    server: FakeServer, path: str, answer: tuple[int, Any], said: str
) -> None:
    server.answers["/health"] = (200, "")  # its front is well
    server.answers["/v1/completions"] = (200, CHOICE)
    server.answers[path] = answer
    with pytest.raises(RigError, match=said):
        real_request(server.url)


def test_a_missing_key_is_said(server: FakeServer) -> None:
    server.answers["/v1/models"] = (401, {"error": "Unauthorized"})
    with pytest.raises(RigError, match="status 401") as caught:
        real_request(server.url)
    assert "VLLM_API_KEY" in str(caught.value.next_step)


def test_an_engine_that_hangs_is_not_healthy(server: FakeServer) -> None:
    server.delay_s = 2.0
    with pytest.raises(RigError, match=r"no answer within 0\.2 s"):
        real_request(server.url, timeout_s=0.2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://x", "127.0.0.1:8000", "http://"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(RigError):
        real_request(url, timeout_s=2)


def test_a_watch_stops_when_told_though_a_request_hangs() -> None:
    began = threading.Event()
    go_on = threading.Event()

    def ask() -> None:
        began.set()
        go_on.wait(10)

    watch = HealthWatch(ask, every_s=0.01)
    watch.start()
    assert began.wait(5)
    before = time.monotonic()
    watch.stop()
    assert time.monotonic() - before < 1
    go_on.set()


def test_the_command(server: FakeServer) -> None:
    server.answers["/v1/completions"] = (200, CHOICE)
    done = CliRunner().invoke(app, ["health", server.url], env={"VLLM_API_KEY": "secret"})
    assert done.exit_code == 0, done.output
    assert {key for _, _, key in server.asked} == {"Bearer secret"}
    server.answers["/v1/completions"] = (500, "dead")
    done = CliRunner().invoke(app, ["health", server.url, "--timeout", "2"])
    assert done.exit_code != 0
    assert isinstance(done.exception, RigError)
