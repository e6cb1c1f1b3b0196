"""What is asked and what is answered, the same for the server and for the oracle.

Runs in the tools' environment and in the engine's: standard library only.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ANSWER_TOKENS = 16


@dataclass(frozen=True)
class Question:
    """One user message: PNG images first, then text."""

    text: str
    images: tuple[bytes, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, "images": [base64.b64encode(i).decode() for i in self.images]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Question:
        return cls(raw["text"], tuple(base64.b64decode(i) for i in raw["images"]))


@dataclass(frozen=True)
class Answer:
    """A greedy answer.

    Args:
        token_ids: the answer's tokens.
        logprobs: natural logarithm of each token's probability, as many as tokens.
        text: the tokens, decoded.
        prompt_token_ids: what the model was given, image placeholders included.
        margin: the smallest lead of a chosen token's logprob over the next best; only the
            oracle knows it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    prompt_token_ids: tuple[int, ...]
    margin: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "token_ids": list(self.token_ids),
            "logprobs": list(self.logprobs),
            "text": self.text,
            "prompt_token_ids": list(self.prompt_token_ids),
            "margin": self.margin,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Answer:
        return cls(
            token_ids=tuple(raw["token_ids"]),
            logprobs=tuple(raw["logprobs"]),
            text=raw["text"],
            prompt_token_ids=tuple(raw["prompt_token_ids"]),
            margin=raw["margin"],
        )


def chat_messages(question: Question, image_parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The chat messages of a question, with the images in the form that the caller's side has."""
    content = [*image_parts, {"type": "text", "text": question.text}]
    return [{"role": "user", "content": content}]
