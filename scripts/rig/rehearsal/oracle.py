# mypy: disable-error-code="import-not-found"
"""The oracle: what Hugging Face transformers answers, in float32, with greedy decoding.

It shares no model code with vLLM. It does share the folder of weights, the chat template and
the image processor, which the server reads from the same folder.

    python -m rig.rehearsal.oracle MODEL <questions.json >answers.json

Runs in the engine's environment (torch, transformers).
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from rig.rehearsal.exchange import ANSWER_TOKENS, Answer, Question, chat_messages


class Oracle:
    """A model folder, loaded once."""

    def __init__(self, folder: Path) -> None:
        self.processor = AutoProcessor.from_pretrained(folder)
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self.model = model.eval()

    def inputs(self, question: Question) -> Any:
        """What the model is given for a question: token ids and pixel values."""
        images = [Image.open(io.BytesIO(png)).convert("RGB") for png in question.images]
        parts = [{"type": "image", "image": image} for image in images]
        return self.processor.apply_chat_template(
            chat_messages(question, parts),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )

    def answer(self, question: Question, tokens: int = ANSWER_TOKENS) -> Answer:
        """The greedy answer and the logprobs of its tokens."""
        inputs = self.inputs(question)
        prompt = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            out = self.model.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=tokens,
                output_logits=True,
                return_dict_in_generate=True,
            )
        chosen = out.sequences[0, prompt:]
        logprobs = torch.log_softmax(torch.stack(out.logits)[:, 0].float(), dim=-1)
        best_two = logprobs.topk(2, dim=-1).values
        return Answer(
            token_ids=tuple(chosen.tolist()),
            logprobs=tuple(logprobs.gather(1, chosen[:, None])[:, 0].tolist()),
            text=self.processor.tokenizer.decode(chosen, skip_special_tokens=True),
            prompt_token_ids=tuple(inputs["input_ids"][0].tolist()),
            margin=float((best_two[:, 0] - best_two[:, 1]).min()),
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="rig.rehearsal.oracle", description=__doc__)
    parser.add_argument("model", type=Path)
    arguments = parser.parse_args()
    questions = [Question.from_json(raw) for raw in json.load(sys.stdin)]
    oracle = Oracle(arguments.model)
    json.dump([oracle.answer(question).as_json() for question in questions], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
