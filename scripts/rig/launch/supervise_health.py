"""Health by a real request: one token from the loaded model, not only an answer of its front."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from rig.errors import RigError
from rig.launch.asking import open_connection

_SHOWN_CHARACTERS = 300
# Tried in this order: a chat model may refuse plain completions, pooling models have neither.
_QUESTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("/v1/completions", {"prompt": "1", "max_tokens": 1, "temperature": 0}, "choices"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "1"}], "max_tokens": 1, "temperature": 0},
        "choices",
    ),
    ("/v1/embeddings", {"input": "1"}, "data"),
    ("/classify", {"input": "1"}, "data"),
    ("/pooling", {"input": "1"}, "data"),
)
_NOT_OFFERED = (400, 404, 405, 501)
_NOT_LET_IN = (401, 403)


class NotTakenError(RigError):
    """The server answers, and takes no request of ours: of its health nothing is known.

    It may only transcribe, want an image with each prompt, or want a key that we do not have.
    """


def real_request(base_url: str, timeout_s: float = 60.0, api_key: str | None = None) -> None:
    """Have the server compute one token (or one embedding) with the model that it serves.

    Args:
        base_url: http://HOST:PORT, with or without `/v1`.
        timeout_s: seconds for each answer.
        api_key: what the server wants in `Authorization`.

    Raises:
        NotTakenError: it takes none of the requests that are known here.
        RigError: no answer in time, an error, or an answer without a result.
    """
    base_url = base_url.rstrip("/").removesuffix("/v1")
    code, models = _exchange(base_url, "/v1/models", None, timeout_s, api_key)
    try:
        model = models["data"][0]["id"]
    except (KeyError, IndexError, TypeError) as error:
        raise _failure(base_url, "/v1/models", code, models) from error
    refused: RigError | None = None
    for path, question, key in _QUESTIONS:
        body = {"model": model, **question}
        code, answer = _exchange(base_url, path, body, timeout_s, api_key)
        if code == 200 and isinstance(answer, dict) and answer.get(key):
            return
        failure = _failure(base_url, path, code, answer)
        if code not in _NOT_OFFERED:
            raise failure
        refused = refused or failure
    assert refused is not None
    raise refused


def _failure(base_url: str, path: str, code: int, answer: object) -> RigError:
    kind = NotTakenError if code in (*_NOT_OFFERED, *_NOT_LET_IN) else RigError
    said = answer if isinstance(answer, str) else json.dumps(answer)
    step = "set VLLM_API_KEY to the server's key" if code == 401 else None
    return kind(
        f"the server answered with status {code}: {said[:_SHOWN_CHARACTERS]}",
        where=base_url + path,
        next_step=step,
    )


def _exchange(
    base_url: str, path: str, body: object, timeout_s: float, api_key: str | None
) -> tuple[int, Any]:
    connection = open_connection(base_url, timeout_s)
    prefix = urlsplit(base_url).path
    try:
        headers = {"Content-Type": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            data = None if body is None else json.dumps(body)
            connection.request("GET" if data is None else "POST", prefix + path, data, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
    except TimeoutError as error:
        raise RigError(f"no answer within {timeout_s:g} s", where=base_url + path) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RigError(f"the server cannot be asked: {error}", where=base_url + path) from error
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


class HealthWatch:
    """Asks again and again in a thread of its own, and counts the failures in a row."""

    def __init__(self, ask: Callable[[], None], every_s: float) -> None:
        self._ask = ask
        self._every_s = every_s
        self._failures: tuple[int, str] = (0, "")
        self._answered = False
        self._unasked = ""
        self._ended = threading.Event()
        # A daemon: a request that hangs must not keep a launcher that stops.
        self._thread = threading.Thread(target=self._run, name="rig-health", daemon=True)

    @property
    def failures(self) -> tuple[int, str]:
        """How many requests in a row have failed up to now, and why the last one did."""
        return self._failures

    @property
    def unasked(self) -> str:
        """Why nothing can be known, if the server has taken no request of ours yet; else ""."""
        return self._unasked

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a request under way is not waited for."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._ask()
            except NotTakenError as error:
                if self._answered:  # it did take one before
                    self._failures = (self._failures[0] + 1, error.what)
                else:
                    self._unasked = error.what
            except Exception as error:  # a watch that ended without a word would watch nothing
                said = error.what if isinstance(error, RigError) else repr(error)
                self._failures = (self._failures[0] + 1, said)
            else:
                self._answered, self._unasked, self._failures = True, "", (0, "")
