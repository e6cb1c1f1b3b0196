# mypy: disable-error-code="import-not-found"
"""A Qwen3-VL of 10 MB: four vision blocks, deepstack, four text layers.

All head counts are multiples of four, so that it can be split over 1, 2 or 4 ranks. The
vocabulary is not a multiple of anything, so that its padding is exercised.

Runs in the engine's environment (torch, transformers).
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from rig.rehearsal.tiny_models.byte_tokenizer import byte_tokenizer, readable_ids
from rig.rehearsal.tiny_models.weights import fill

PATCH = 16
MERGE = 2
MIN_PIXELS = 64 * 64
MAX_PIXELS = 256 * 256

START, END = "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
SPECIAL = (START, END, VISION_START, VISION_END, IMAGE, VIDEO)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{START}{{{{ message.role }}}}\n"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    f"{{%- if part.type in ('image', 'image_url') -%}}{VISION_START}{IMAGE}{VISION_END}"
    f"{{%- elif part.type in ('video', 'video_url') -%}}{VISION_START}{VIDEO}{VISION_END}"
    "{%- else -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    f"{END}\n"
    "{%- endfor -%}"
    f"{{%- if add_generation_prompt -%}}{START}assistant\n{{%- endif -%}}"
)

# Logits well apart (no near-ties that another order of additions could turn), and layers that
# add more to the residual stream than the last token's embedding brings: the answer hangs on
# what attention fetched, the image above all.
GAINS = {
    "lm_head.weight": 8.0,
    "*.language_model.layers.*.self_attn.o_proj.weight": 4.0,
    "*.language_model.layers.*.mlp.down_proj.weight": 6.0,
    "*.visual.*linear_fc2.weight": 2.0,
}


def config(token_ids: dict[str, int], vocabulary: int, text_layers: int = 4) -> Qwen3VLConfig:
    """The model's configuration.

    Args:
        text_layers: at least three, or the last deepstack features reach no answer.
    """
    return Qwen3VLConfig(
        architectures=["Qwen3VLForConditionalGeneration"],
        image_token_id=token_ids[IMAGE],
        video_token_id=token_ids[VIDEO],
        vision_start_token_id=token_ids[VISION_START],
        vision_end_token_id=token_ids[VISION_END],
        tie_word_embeddings=False,
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": text_layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "eos_token_id": token_ids[END],
            "pad_token_id": None,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": (MAX_PIXELS // PATCH**2),
            "deepstack_visual_indexes": [1, 2],
        },
        dtype="float32",
    )


def build(folder: Path, seed: int) -> None:
    """Write config, weights, tokenizer, chat template and processors into a folder."""
    tokenizer = byte_tokenizer(seed, SPECIAL, end=END, pad=END)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    model = Qwen3VLForConditionalGeneration(config(ids, len(tokenizer))).float()
    fill(model, seed, GAINS)
    _answer_readably(model, readable_ids(tokenizer))
    model.generation_config = GenerationConfig(eos_token_id=ids[END], do_sample=False)
    model.save_pretrained(folder)

    size = {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}
    pixels = {"size": size, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    patches = {"patch_size": PATCH, "merge_size": MERGE, "temporal_patch_size": 2} | pixels
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**patches),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**patches),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def _answer_readably(model: Qwen3VLForConditionalGeneration, readable: list[int]) -> None:
    """Zero the output rows of all but printable tokens, so that the answer is plain text.

    A logit of zero is as good as never the largest of 94 random ones: the answer also never
    ends early.
    """
    keep = torch.zeros(model.lm_head.weight.shape[0], 1)
    keep[readable] = 1.0
    with torch.no_grad():
        model.lm_head.weight.mul_(keep)
