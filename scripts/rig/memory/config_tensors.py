"""The weights that a model of some config has, for when no weight file can be asked.

Names are those that most checkpoints use; what counts is how many values a weight has, of which
type, and by which rule it is shared out (`rig.memory.shards`). Families that differ much from
these shapes are off by what they do differently: headers are always better.
"""

from __future__ import annotations

from collections.abc import Iterator

from rig.memory.architecture import Architecture
from rig.memory.headers import Tensor
from rig.memory.layers import Attention, State
from rig.memory.quantization import Quantization
from rig.memory.vision_tensors import vision_tensors

_PLAIN_MLP = ("gpt2", "gpt_neox", "gptj", "falcon", "phi", "starcoder2", "bloom", "opt", "mpt")
"""Types (beginnings of names) whose feed-forward layers have two weights, not three."""
_QKV_BIAS = ("qwen2", "qwen", "glm", "chatglm", "internlm", "gpt_oss")
_NO_QKV_BIAS = ("qwen3", "qwen2_5_omni_none")


def tensors_of(model: Architecture, quantization: Quantization) -> tuple[Tensor, ...]:
    """Compute the weights of a model from its structure."""
    made = _Maker(model, quantization)
    found = list(made.language())
    if model.vision is not None:
        found += vision_tensors(model.vision, model.hidden, model.dtype)
    return tuple(found)


class _Maker:
    def __init__(self, model: Architecture, quantization: Quantization) -> None:
        self.model = model
        self.text = model.text
        self.quantization = quantization

    def language(self) -> Iterator[Tensor]:
        model = self.model
        yield self._plain("model.embed_tokens.weight", model.vocabulary, model.hidden)
        for number, layer in enumerate(model.layers):
            prefix = f"model.layers.{number}"
            if isinstance(layer, Attention):
                yield from self._attention(f"{prefix}.self_attn", layer)
            elif isinstance(layer, State):
                yield from self._state(f"{prefix}.mixer", layer)
            yield from self._feed_forward(f"{prefix}.mlp", number)
            for norm in self._norms():
                yield self._plain(f"{prefix}.{norm}.weight", model.hidden)
        yield self._plain("model.norm.weight", model.hidden)
        if not model.tied:
            yield self._plain("lm_head.weight", model.vocabulary, model.hidden)

    def _norms(self) -> tuple[str, ...]:
        both = ("input_layernorm", "post_attention_layernorm")
        if self.model.model_type.startswith(("gemma2", "gemma3", "gemma4")):
            return (*both, "pre_feedforward_layernorm", "post_feedforward_layernorm")
        return both

    def _plain(self, name: str, *shape: int, dtype: str | None = None) -> Tensor:
        return Tensor(name, dtype or self.model.dtype, shape)

    def _linear(self, name: str, out: int, into: int, *, bias: bool = False) -> Iterator[Tensor]:
        if self.quantization.method == "none" or any(
            part and part in name for part in self.quantization.ignored
        ):
            yield self._plain(f"{name}.weight", out, into)
        else:
            yield from quantised(name, out, into, self.quantization, self.model.dtype)
        if bias:
            yield self._plain(f"{name}.bias", out)

    def _attention(self, name: str, layer: Attention) -> Iterator[Tensor]:
        model, text = self.model, self.text
        if layer.kind == "mla":
            yield from self._latent(name, layer)
            return
        kind = model.model_type
        guessed = kind.startswith(_QKV_BIAS) and not kind.startswith(_NO_QKV_BIAS)
        bias = bool(text.get("attention_bias", text.get("qkv_bias", guessed)))
        query = layer.heads * layer.head_size
        if kind.startswith(("qwen3_next", "qwen3_5")):  # the output's gate comes with it
            query *= 2
        keys = layer.kv_heads * layer.head_size
        values = layer.kv_heads * layer.value_head_size
        yield from self._linear(f"{name}.q_proj", query, model.hidden, bias=bias)
        yield from self._linear(f"{name}.k_proj", keys, model.hidden, bias=bias)
        yield from self._linear(f"{name}.v_proj", values, model.hidden, bias=bias)
        bias = kind == "gpt_oss" or (bias and "attention_bias" in text and kind == "llama")
        inner = layer.heads * layer.value_head_size
        yield from self._linear(f"{name}.o_proj", model.hidden, inner, bias=bias)
        if kind.startswith(("qwen3", "gemma3", "gemma4")):
            yield self._plain(f"{name}.q_norm.weight", layer.head_size)
            yield self._plain(f"{name}.k_norm.weight", layer.head_size)

    def _latent(self, name: str, layer: Attention) -> Iterator[Tensor]:
        text, hidden = self.text, self.model.hidden
        rank, rotary = int(text["kv_lora_rank"]), int(text.get("qk_rope_head_dim") or 0)
        nope = int(text.get("qk_nope_head_dim") or 0)
        value = int(text.get("v_head_dim") or nope)
        query = layer.heads * (nope + rotary)
        if q_rank := text.get("q_lora_rank"):
            yield from self._linear(f"{name}.q_a_proj", int(q_rank), hidden)
            yield self._plain(f"{name}.q_a_layernorm.weight", int(q_rank))
            yield from self._linear(f"{name}.q_b_proj", query, int(q_rank))
        else:
            yield from self._linear(f"{name}.q_proj", query, hidden)
        yield from self._linear(f"{name}.kv_a_proj_with_mqa", rank + rotary, hidden)
        yield self._plain(f"{name}.kv_a_layernorm.weight", rank)
        yield from self._linear(f"{name}.kv_b_proj", layer.heads * (nope + value), rank)
        yield from self._linear(f"{name}.o_proj", hidden, layer.heads * value)

    def _state(self, name: str, layer: State) -> Iterator[Tensor]:
        hidden, inner = self.model.hidden, layer.inner
        if layer.kind == "gdn":
            keys = layer.groups * layer.key_head_size
            yield from self._linear(f"{name}.in_proj_qkvz", 2 * keys + 2 * inner, hidden)
            yield self._plain(f"{name}.in_proj_ba.weight", 2 * layer.heads, hidden)
            yield self._plain(f"{name}.conv1d.weight", 2 * keys + inner, 1, layer.kernel)
            yield self._plain(f"{name}.norm.weight", layer.head_size)
            yield from (self._plain(f"{name}.{n}", layer.heads) for n in ("A_log", "dt_bias"))
        elif layer.kind == "mamba2":
            groups = 2 * layer.groups * layer.state
            rows = 2 * inner + groups + layer.heads
            yield from self._linear(f"{name}.in_proj", rows, hidden)
            yield self._plain(f"{name}.conv1d.weight", inner + groups, 1, layer.kernel)
            yield self._plain(f"{name}.norm.weight", inner)
            yield from (self._plain(f"{name}.{n}", layer.heads) for n in ("A_log", "D", "dt_bias"))
        elif layer.kind == "mamba1":
            rank = int(self.text.get("mamba_dt_rank") or self.text.get("time_step_rank") or 0)
            rank = rank or -(-hidden // 16)
            yield from self._linear(f"{name}.in_proj", 2 * inner, hidden)
            yield self._plain(f"{name}.conv1d.weight", inner, 1, layer.kernel)
            yield from self._linear(f"{name}.x_proj", rank + 2 * layer.state, inner)
            yield self._plain(f"{name}.dt_proj.weight", inner, rank)
            yield self._plain(f"{name}.A_log", inner, layer.state)
        else:
            yield from self._linear(f"{name}.in_proj", 3 * inner, hidden)
            yield self._plain(f"{name}.conv.weight", inner, 1, layer.kernel)
        yield from self._linear(f"{name}.out_proj", hidden, inner)

    def _feed_forward(self, name: str, number: int) -> Iterator[Tensor]:
        model = self.model
        if model.experts is None or number not in model.moe_layers:
            if model.intermediate:
                yield from self._mlp(name, model.intermediate)
            return
        experts = model.experts
        yield self._plain(f"{name}.gate.weight", experts.count, model.hidden)
        if self.quantization.method == "mxfp4":
            yield from self._mxfp4(f"{name}.experts", experts.count, experts.intermediate)
        else:
            for expert in range(experts.count):
                yield from self._mlp(f"{name}.experts.{expert}", experts.intermediate)
        if experts.shared:
            yield from self._mlp(f"{name}.shared_experts", experts.shared)

    def _mlp(self, name: str, intermediate: int) -> Iterator[Tensor]:
        hidden = self.model.hidden
        bias = bool(self.text.get("mlp_bias"))
        if not self.model.model_type.startswith(_PLAIN_MLP) or self.model.model_type == "phi3":
            yield from self._linear(f"{name}.gate_proj", intermediate, hidden, bias=bias)
        yield from self._linear(f"{name}.up_proj", intermediate, hidden, bias=bias)
        yield from self._linear(f"{name}.down_proj", hidden, intermediate, bias=bias)

    def _mxfp4(self, name: str, count: int, intermediate: int) -> Iterator[Tensor]:
        hidden = self.model.hidden
        for part, out, into in (
            ("gate_up_proj", 2 * intermediate, hidden),
            ("down_proj", hidden, intermediate),
        ):
            groups = into // 32
            yield Tensor(f"{name}.{part}_blocks", "U8", (count, out, groups, 16))
            yield Tensor(f"{name}.{part}_scales", "U8", (count, out, groups))
            yield self._plain(f"{name}.{part}_bias", count, out)


def quantised(name: str, out: int, into: int, how: Quantization, dtype: str) -> Iterator[Tensor]:
    """The weights that a quantised linear layer has in a file."""
    packed = 32 // how.bits if how.bits in (2, 4, 8) else 1
    group = into if how.group < 1 else min(how.group, into)
    groups = -(-into // group)
    if how.method == "awq":
        yield Tensor(f"{name}.qweight", "I32", (into, out // packed))
        yield Tensor(f"{name}.qzeros", "I32", (groups, out // packed))
        yield Tensor(f"{name}.scales", dtype, (groups, out))
    elif how.method == "gptq":
        yield Tensor(f"{name}.qweight", "I32", (into // packed, out))
        yield Tensor(f"{name}.qzeros", "I32", (groups, out // packed))
        yield Tensor(f"{name}.scales", dtype, (groups, out))
        yield Tensor(f"{name}.g_idx", "I32", (into,))
    elif how.method == "fp8":
        yield Tensor(f"{name}.weight", "F8_E4M3", (out, into))
        if how.block:
            rows, columns = -(-out // how.block[0]), -(-into // how.block[1])
            yield Tensor(f"{name}.weight_scale_inv", "F32", (rows, columns))
        else:
            yield Tensor(f"{name}.weight_scale", "F32", (out if how.group == -1 else 1, 1))
    elif how.method == "compressed-tensors" and how.bits == 8 and how.group == -1:
        yield Tensor(f"{name}.weight", "I8", (out, into))
        yield Tensor(f"{name}.weight_scale", dtype, (out, 1))
    elif how.method == "compressed-tensors":
        yield Tensor(f"{name}.weight_packed", "I32", (out, into // packed))
        yield Tensor(f"{name}.weight_scale", dtype, (out, groups))
    elif how.method == "mxfp4":  # its experts only
        yield Tensor(f"{name}.weight", dtype, (out, into))
    else:
        yield Tensor(f"{name}.weight", "U8", (out, -(-into * how.bits // 8)))
