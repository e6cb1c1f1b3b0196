"""Asks the OpenAI server, as any user's client would: over HTTP, images as data addresses."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import requests

from rig.errors import RigError
from rig.rehearsal.exchange import ANSWER_TOKENS, Answer, Question, chat_messages

_CONNECT_SECONDS = 10
_SHOWN_CHARACTERS = 2000


def chat_request(model: str, question: Question, tokens: int = ANSWER_TOKENS) -> dict[str, Any]:
    """The body of the request: greedy, with the logprob and id of every token."""
    parts = [
        {"type": "image_url", "image_url": {"url": _data_address(png)}} for png in question.images
    ]
    return {
        "model": model,
        "messages": chat_messages(question, parts),
        "max_tokens": tokens,
        "temperature": 0,
        "logprobs": True,
        "return_token_ids": True,
    }


def ask(
    base_url: str,
    model: str,
    question: Question,
    *,
    tokens: int = ANSWER_TOKENS,
    timeout: float = 300,
) -> Answer:
    """The served model's greedy answer.

    Args:
        base_url: the server's address, without `/v1`.
        model: the name that the model is served under.
        timeout: seconds to wait for the answer.

    Raises:
        RigError: no answer, an error status, or an answer without ids and logprobs.
    """
    address = f"{base_url}/v1/chat/completions"
    body = _exchange("POST", address, timeout, chat_request(model, question, tokens))
    try:
        choice = body["choices"][0]
        answer = Answer(
            token_ids=tuple(choice["token_ids"]),
            logprobs=tuple(entry["logprob"] for entry in choice["logprobs"]["content"]),
            text=choice["message"]["content"],
            prompt_token_ids=tuple(body["prompt_token_ids"]),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise RigError(
            f"the server's answer is not a chat completion with token ids and logprobs: {error!r}",
            where=address,
            detail=str(body)[:_SHOWN_CHARACTERS],
        ) from error
    if len(answer.token_ids) != len(answer.logprobs):
        raise RigError(
            f"the server's answer has {len(answer.token_ids)} tokens and "
            f"{len(answer.logprobs)} logprobs",
            where=address,
        )
    return answer


@dataclass(frozen=True)
class ServedBuild:
    """What a server says of itself.

    Args:
        version: vLLM's version.
        series: digest of the patch series; "" if it is no build of ours.
        patches: the numbers of its patches.
        modified: what differs from what was built; empty when nothing does.
    """

    version: str
    series: str = ""
    patches: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def served_build(base_url: str, timeout: float = 30) -> ServedBuild:
    """What `/version` says.

    Raises:
        RigError: no answer, or not in the form that a build of ours gives.
    """
    address = f"{base_url}/version"
    body = _exchange("GET", address, timeout)
    try:
        if "rig" not in body:
            return ServedBuild(body["version"])
        ours = body["rig"]
        return ServedBuild(
            version=body["version"],
            series=ours["series"],
            patches=tuple(ours["patches"]),
            modified=tuple(ours.get("modified", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RigError(
            f"the server's answer does not say what build it is: {error!r}",
            where=address,
            detail=str(body)[:_SHOWN_CHARACTERS],
        ) from error


def _exchange(method: str, address: str, timeout: float, body: Any = None) -> Any:
    """Send a request, return the JSON of its answer."""
    with requests.Session() as session:
        session.trust_env = False  # a proxy of the environment knows nothing of this machine
        try:
            reply = session.request(method, address, json=body, timeout=(_CONNECT_SECONDS, timeout))
        except requests.RequestException as error:
            raise RigError(
                f"the server did not answer: {type(error).__name__}: {error}",
                where=address,
                next_step="see the engine's log",
            ) from error
    shown = reply.text[:_SHOWN_CHARACTERS]
    if reply.status_code != 200:
        raise RigError(
            f"the server answered with status {reply.status_code}",
            where=address,
            detail=shown,
            next_step="see the engine's log",
        )
    try:
        return reply.json()
    except requests.JSONDecodeError as error:
        raise RigError("the server's answer is not JSON", where=address, detail=shown) from error


def _data_address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
