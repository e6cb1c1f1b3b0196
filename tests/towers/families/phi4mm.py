"""Phi-4-multimodal: `vision_encoder` and `embed_tokens_extend` (audio) are marked one by one.

Blocks: `vision_encoder.img_processor.encoder.layers` (Idefics2 vision) and
`embed_tokens_extend.encoder.encoders` (a conformer; the list is a `Sequential`), each entered by
its `forward`. A request with both runs all images in one pass, then one pass for each clip. No
parameter is shared.

`vision_encoder.glb_GN` and `sub_GN` are bare parameters. The vision encoder takes its dtype from
`img_projection[0].bias`, before that layer is entered.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PretrainedConfig, SiglipVisionConfig
from vllm.model_executor.models import phi4mm
from vllm.model_executor.models.phi4mm import Phi4MMForCausalLM, Phi4MMImageEncoder
from vllm.model_executor.models.phi4mm_audio import AudioEmbedding

from tests.towers.family import Family, numbers

GRID, PATCH, MEL_BINS, CROP = 8, 4, 16, 448
"""Rows of patches in a crop, pixels in a patch, mel bins, nominal size of a crop."""
CASES: dict[str, Any] = {
    "both": {"images": [(1, 1, 6, 8)], "clips": [33, 120]},
    "one image": {"images": [(1, 1, 8, 4)]},
    "several images": {"images": [(2, 1, 12, 8), (1, 1, 8, 8)]},
    "one clip": {"clips": [60]},
    "several clips": {"clips": [203, 40, 16]},
}
"""Crops down and across of each image, and its real rows and columns; frames of each clip."""


class Phi4MMTower(Phi4MMForCausalLM):
    """The model without its language model."""

    def __init__(self, config: PretrainedConfig) -> None:
        nn.Module.__init__(self)
        self.config = config

        def tiny(**sizes: Any) -> SiglipVisionConfig:
            sizes |= {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
            sizes |= {"num_hidden_layers": 6, "image_size": GRID * PATCH, "patch_size": PATCH}
            return SiglipVisionConfig(**sizes)

        with patch.object(phi4mm, "SiglipVisionConfig", tiny):  # the sizes are in the code
            self.vision_encoder = Phi4MMImageEncoder(
                config, None, prefix="model.vision_embed_tokens"
            )
        self.embed_tokens_extend = AudioEmbedding(config, **config.embd_layer["audio_embd_layer"])


def build() -> nn.Module:
    """Five of six vision blocks and five audio blocks, settings as the model's."""
    audio = {
        "input_size": MEL_BINS,
        "attention_dim": 64,
        "attention_heads": 4,
        "linear_units": 96,
        "num_blocks": 5,
        "chunk_size": -1,
        "left_chunk": 18,
        "kernel_size": 3,
        "ext_pw_kernel_size": 1,
        "ext_pw_out_channel": 64,
        "depthwise_seperable_out_channel": 64,
        "depthwise_multiplier": 1,
        "dropout_rate": 0.0,
        "causal": True,
        "activation": "swish",
        "conv_activation": "swish",
        "conv_glu_type": "swish",
        "bias_in_glu": True,
        "cnn_layer_norm": True,
        "cnn_out": 64,
        "time_reduction": 8,
        "nemo_conv_settings": {"conv_channels": 64},
        "encoder_embedding_config": {"input_size": MEL_BINS},
        "relative_attention_bias_args": {"type": "t5", "t5_bias_max_distance": 50},
    }
    return Phi4MMTower(
        PretrainedConfig(
            hidden_size=96,
            vocab_size=64,
            img_processor={"layer_idx": -2, "type_feature": "patch"},
            audio_processor={"name": "cascades", "config": audio},
            embd_layer={
                "audio_embd_layer": {
                    "embedding_cls": "audio",
                    "downsample_rate": 1,
                    "projection_cls": "mlp",
                }
            },
        )
    )


def _masks(image: tuple[int, int, int, int]) -> torch.Tensor:
    """Which patches of an image's crops are real (crops, 8, 8); the first crop is the whole."""
    down, across, rows, columns = image
    mask = torch.zeros(down * GRID, across * GRID, dtype=torch.bool, device="cpu")
    mask[:rows, :columns] = True
    crops = mask.view(down, GRID, across, GRID).transpose(1, 2).reshape(-1, GRID, GRID)
    return torch.cat([torch.ones_like(crops[:1]), crops])


def inputs(dtype: torch.dtype) -> dict[str, Any]:
    """Per case the crops of each image (crops, 3, 32, 32), and the spectrogram of each clip."""
    size = GRID * PATCH
    cases: dict[str, Any] = {}
    for case, items in CASES.items():
        images = items.get("images", [])
        cases[case] = {
            "images": [
                numbers(rows, 1 + down * across, 3, size, size, dtype=dtype)
                for down, across, rows, _ in images
            ],
            "masks": [_masks(image) for image in images],
            "sizes": [(down * CROP, across * CROP) for down, across, *_ in images],
            "clips": [
                numbers(frames, frames, MEL_BINS, dtype=dtype) for frames in items.get("clips", [])
            ],
        }
    return cases


def run(tower: Any, case: dict[str, Any]) -> Any:
    """Embeddings, one tensor (tokens, 96) for each image, then for each clip.

    The model's own checks of its inputs are left out: they want its full sizes.
    """
    embeddings: list[torch.Tensor] = []
    if case["images"]:
        embeddings += tower._process_image_input(
            {
                "pixel_values": case["images"],
                "image_attention_mask": case["masks"],
                "image_sizes": torch.tensor(case["sizes"], device="cpu"),  # kept there
            }
        )
    if case["clips"]:
        mode = "vision" if case["images"] else "speech"
        clips = {"type": "audio_features", "audio_features": case["clips"]}
        # The CPU has its own attention kernel; every device has this one. The model chooses.
        plain = partial(sdpa_kernel, SDPBackend.MATH)
        with patch.object(torch.nn.attention, "sdpa_kernel", lambda _: plain()):
            embeddings += tower._process_audio_input(clips, audio_projection_mode=mode)
    return embeddings


FAMILY = Family(name="phi4mm", build=build, inputs=inputs, run=run)
