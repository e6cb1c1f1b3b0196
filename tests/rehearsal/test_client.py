"""The client, against a server that answers as told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rig.errors import RigError
from rig.rehearsal.client import ServedBuild, ask, served_build
from rig.rehearsal.exchange import Question

QUESTION = Question("What is it?", (b"png one", b"png two"))


def completion() -> dict[str, Any]:
    """A chat completion as vLLM gives it, as far as the client reads it."""
    return {
        "choices": [
            {
                "message": {"role": "assistant", "content": "ab"},
                "logprobs": {
                    "content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]
                },
                "token_ids": [11, 12],
            }
        ],
        "prompt_token_ids": [1, 2, 3],
    }


class Stub:
    """What the server answers, and what it was asked."""

    def __init__(self, body: object, status: int) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.asked: list[tuple[str, Any]] = []
        self.url = ""


@contextmanager
def stub(body: object, status: int = 200) -> Iterator[Stub]:
    state = Stub(body, status)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, asked: Any) -> None:
            state.asked.append((self.path, asked))
            self.send_response(state.status)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_it_asks_greedily_with_both_images_and_reads_ids_and_logprobs() -> None:
    with stub(completion()) as server:
        answer = ask(server.url, "tiny", QUESTION, tokens=2)
    assert answer.token_ids == (11, 12)
    assert answer.logprobs == (-0.5, -1)
    assert answer.text == "ab"
    assert answer.prompt_token_ids == (1, 2, 3)
    ((path, body),) = server.asked
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("tiny", 0, 2)
    assert body["logprobs"] is True
    assert body["return_token_ids"] is True
    one, two, text = body["messages"][0]["content"]
    prefix = "data:image/png;base64,"
    shown = [part["image_url"]["url"] for part in (one, two)]
    assert [base64.b64decode(url.removeprefix(prefix)) for url in shown] == [b"png one", b"png two"]
    assert text == {"type": "text", "text": "What is it?"}


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with stub(completion()) as server:
        assert ask(server.url, "tiny", QUESTION).text == "ab"


def test_an_error_status_is_shown_with_what_the_server_said() -> None:
    with (
        stub({"error": {"message": "no such model"}}, 404) as server,
        pytest.raises(RigError, match="status 404") as caught,
    ):
        ask(server.url, "other", QUESTION)
    assert "no such model" in str(caught.value)


def test_no_server_is_an_error() -> None:
    with stub({}) as server:
        url = server.url
    with pytest.raises(RigError, match="did not answer"):
        ask(url, "tiny", QUESTION)


@pytest.mark.parametrize("missing", ["choices", "prompt_token_ids"])
def test_an_answer_without_a_part_is_an_error(missing: str) -> None:
    body = completion()
    del body[missing]
    with stub(body) as server, pytest.raises(RigError, match=missing):
        ask(server.url, "tiny", QUESTION)


def test_an_answer_without_ids_is_an_error() -> None:
    body = completion()
    body["choices"][0]["token_ids"] = None
    with stub(body) as server, pytest.raises(RigError, match="token ids"):
        ask(server.url, "tiny", QUESTION)


def test_fewer_logprobs_than_tokens_is_an_error() -> None:
    body = completion()
    body["choices"][0]["logprobs"]["content"].pop()
    with stub(body) as server, pytest.raises(RigError, match="2 tokens and 1 logprobs"):
        ask(server.url, "tiny", QUESTION)


def test_an_answer_that_is_no_json_is_an_error() -> None:
    with stub(b"<html>") as server, pytest.raises(RigError, match="not JSON") as caught:
        ask(server.url, "tiny", QUESTION)
    assert "<html>" in str(caught.value)


def test_the_build_is_read_with_its_patches() -> None:
    ours = {"release": "0.32.0", "series": "abc", "tree": "def", "patches": ["0101", "0901"]}
    with stub({"version": "0.32.0+rig.1.cpu", "rig": ours}) as server:
        build = served_build(server.url)
    assert build == ServedBuild("0.32.0+rig.1.cpu", "abc", ("0101", "0901"))


def test_a_changed_installation_is_read_as_such() -> None:
    ours = {"series": "abc", "patches": ["0101"], "modified": ["vllm/a.py: changed"]}
    with stub({"version": "1", "rig": ours}) as server:
        assert served_build(server.url).modified == ("vllm/a.py: changed",)


def test_a_server_that_is_no_build_of_ours_has_no_series() -> None:
    with stub({"version": "0.32.0"}) as server:
        assert served_build(server.url) == ServedBuild("0.32.0")


@pytest.mark.parametrize("ours", [{}, {"series": "abc"}, {"series": "a", "patches": 3}, ["0101"]])
def test_a_build_in_another_form_is_an_error(ours: object) -> None:
    with stub({"version": "1", "rig": ours}) as server, pytest.raises(RigError, match="what build"):
        served_build(server.url)
