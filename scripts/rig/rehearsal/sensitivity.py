# mypy: disable-error-code="import-not-found"
"""How far each weight of a tiny model reaches: what a comparison with the oracle can notice.

A comparison proves nothing about a weight that the answer does not depend on. So every
parameter tensor in turn is disturbed, in transformers, and the logprobs of the same answer are
taken again.

    python -m rig.rehearsal.sensitivity MODEL <question.json >reach.json

Runs in the engine's environment (torch, transformers).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from rig.rehearsal.exchange import Answer, Question
from rig.rehearsal.oracle import Oracle


def reach(oracle: Oracle, question: Question) -> dict[str, float]:
    """Parameter name -> largest change of a logprob when its first dimension is rolled by one.

    Rolled, not scaled: a norm after a matrix undoes a scale.
    """
    answer = oracle.answer(question)
    inputs = oracle.inputs(question)
    before = _logprobs(oracle, inputs, answer)
    changes = {}
    for name, parameter in oracle.model.named_parameters():
        kept = parameter.data
        parameter.data = kept.roll(1, dims=0)
        changes[name] = float((_logprobs(oracle, inputs, answer) - before).abs().max())
        parameter.data = kept
    return changes


def _logprobs(oracle: Oracle, inputs: Any, answer: Answer) -> torch.Tensor:
    """The logprobs of a given answer's tokens, in one forward pass."""
    chosen = torch.tensor(answer.token_ids)
    extended = dict(inputs)
    extended["input_ids"] = torch.cat([inputs["input_ids"], chosen[None]], dim=1)
    for name in ("attention_mask", "mm_token_type_ids"):
        if name in inputs:
            tail = torch.full((1, len(chosen)), int(name == "attention_mask"))
            extended[name] = torch.cat([inputs[name], tail.to(inputs[name].dtype)], dim=1)
    with torch.inference_mode():
        logits = oracle.model(**extended).logits[0, -len(chosen) - 1 : -1].float()
    return torch.log_softmax(logits, dim=-1).gather(1, chosen[:, None])[:, 0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="rig.rehearsal.sensitivity", description=__doc__)
    parser.add_argument("model", type=Path)
    arguments = parser.parse_args()
    question = Question.from_json(json.load(sys.stdin))
    json.dump(reach(Oracle(arguments.model), question), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
