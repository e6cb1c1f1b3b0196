"""How a model's weights are quantised, and what of a quantised weight stays on a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Method = Literal["none", "awq", "gptq", "fp8", "compressed-tensors", "mxfp4", "other"]


@dataclass(frozen=True)
class Quantization:
    """What the config says of it.

    Args:
        method: the family of file layouts.
        name: as the config names it.
        bits: of a weight.
        group: input values that share a scale; -1 for all of a row, 0 for the whole weight.
        block: rows and columns that share a scale (FP8), or None.
        zero_points: whether they are stored and used.
        act_order: whether GPTQ's order of activations holds.
        ignored: parts of names that are not quantised.
    """

    method: Method
    name: str
    bits: int = 4
    group: int = 128
    block: tuple[int, int] | None = None
    zero_points: bool = False
    act_order: bool = False
    ignored: tuple[str, ...] = ()


NONE = Quantization("none", "none", bits=16, group=0)


def read_quantization(config: Mapping[str, Any]) -> Quantization:
    """Read `quantization_config` of a model's config, or of its text part."""
    said = config.get("quantization_config") or config.get("compression_config")
    if not said and isinstance(text := config.get("text_config"), Mapping):
        said = text.get("quantization_config")
    if not isinstance(said, Mapping):
        return NONE
    name = str(said.get("quant_method") or said.get("quant_algo") or "unknown").lower()
    ignored = tuple(
        str(part).removeprefix("re:").strip(".*$^")
        for part in said.get("modules_to_not_convert") or said.get("ignore") or ()
    )
    if name in ("awq", "gptq", "awq_marlin", "gptq_marlin"):
        method: Method = "awq" if name.startswith("awq") else "gptq"
        zero = bool(said.get("zero_point", True)) if method == "awq" else not said.get("sym", True)
        return Quantization(
            method,
            name,
            bits=int(said.get("bits") or said.get("w_bit") or 4),
            group=int(said.get("group_size") or said.get("q_group_size") or 128),
            zero_points=zero,
            act_order=bool(said.get("desc_act")),
            ignored=ignored,
        )
    if name == "compressed-tensors":
        return _compressed(said, name, ignored)
    if name in ("fp8", "fbgemm_fp8", "modelopt"):
        block = said.get("weight_block_size")
        size = (int(block[0]), int(block[1])) if block else None
        return Quantization("fp8", name, bits=8, group=0, block=size, ignored=ignored)
    if name == "mxfp4":
        return Quantization("mxfp4", name, group=32, ignored=ignored)
    return Quantization("other", name, bits=int(said.get("bits") or 8), ignored=ignored)


def _compressed(said: Mapping[str, Any], name: str, ignored: tuple[str, ...]) -> Quantization:
    groups = said.get("config_groups") or {}
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") or {}
    is_float = weights.get("type") == "float"
    bits = int(weights.get("num_bits") or 8)
    block = weights.get("block_structure")
    return Quantization(
        "fp8" if is_float and bits == 8 else "compressed-tensors",
        name,
        bits=bits,
        group=int(weights.get("group_size") or (0 if weights.get("strategy") == "tensor" else -1)),
        block=(int(block[0]), int(block[1])) if isinstance(block, list) else None,
        zero_points=not weights.get("symmetric", True),
        act_order=str(weights.get("actorder") or "") in ("group", "dynamic", "True"),
        ignored=ignored,
    )
