"""What the KV cache of a rank takes, as vLLM counts it.

The rules are those of vLLM 0.33.0: a layer's page in `v1/kv_cache_interface.py`, groups of layers
and the pool of blocks in `v1/core/kv_cache_planning.py`, the tokens that it prints at start-up in
`v1/core/kv_cache_utils.py` (`get_kv_cache_capacity`), blocks of hybrid models in
`platforms/interface.py` (`_align_hybrid_block_size`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rig.errors import RigError
from rig.memory.architecture import Architecture
from rig.memory.headers import BITS
from rig.memory.layers import Attention, State

BLOCK_SIZE = 16
"""Tokens. What vLLM takes on NVIDIA cards unless told otherwise."""

CACHE_BYTES = {
    **{"auto": 0, "bfloat16": 2, "float16": 2, "float32": 4},
    **{"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1},
}
"""Bytes of a value by `--kv-cache-dtype`; "auto" is the model's."""


@dataclass(frozen=True)
class Page:
    """One block of one layer: `tokens` per block, `nbytes` of it.

    `kind` is that of `Attention` or "state"; `window` tokens, of a sliding or chunked one;
    `checkpoints` are blocks that a prefill of a recurrent layer writes besides.
    """

    kind: str
    tokens: int
    nbytes: int
    window: int = 0
    checkpoints: int = 0


@dataclass(frozen=True)
class Group:
    """Layers whose blocks are handed out together: the page of each, by the layer's number."""

    page: Page
    pages: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class KvCache:
    """The cache of all ranks with the same tensor parallel size.

    `max_in_flight` is how many tokens may be scheduled and not settled yet. With `prefix_caching`
    a request holds its recurrent state twice, at the last block's boundary and now.
    """

    groups: tuple[Group, ...]
    max_in_flight: int
    prefix_caching: bool

    def bytes_per_block(self, layers: range) -> int:
        """Bytes that one block takes on the rank that has these layers."""
        return max(
            (sum(nbytes for n, nbytes in g.pages if n in layers) for g in self.groups),
            default=0,
        )

    def bytes_per_token(self, layers: range) -> float:
        """Bytes by which a long request grows on that rank with each token."""
        block = self.bytes_per_block(layers)
        return sum(block / g.page.tokens for g in self.groups if g.page.kind in ("full", "mla"))

    def blocks_per_request(self, max_len: int) -> int:
        """Blocks that a request of that many tokens holds at most."""
        return sum(self._blocks(group.page, max_len) for group in self.groups)

    def tokens(self, num_blocks: int, max_len: int) -> int:
        """Tokens as vLLM prints them: requests of full length that fit, times that length."""
        needed = self.blocks_per_request(max_len)
        return int(num_blocks / needed * max_len) if needed else 0

    def _blocks(self, page: Page, max_len: int) -> int:
        if page.kind == "state":
            return 2 + page.checkpoints if self.prefix_caching else 1
        if page.kind == "sliding":
            held = min(page.window - 1 + self.max_in_flight, max_len)
            return -(-held // page.tokens) + 1
        if page.kind == "chunked":
            return -(-min(page.window + self.max_in_flight, max_len) // page.tokens)
        return -(-max_len // page.tokens)


def kv_cache(
    model: Architecture,
    tensor: int,
    *,
    cache_dtype: str = "auto",
    dtype: str | None = None,
    block_size: int = BLOCK_SIZE,
    max_in_flight: int = 4096,
    prefix_caching: bool = True,
    state_dtype: str = "auto",
) -> KvCache:
    """Plan the cache of a model on `tensor` ranks.

    Args:
        dtype: what the engine computes in, as safetensors names it; the config's if absent.
        max_in_flight: vLLM's concurrent batches times its `--max-num-batched-tokens`.
        state_dtype: `--mamba-ssm-cache-dtype`.

    Raises:
        RigError: the type of the cache is none whose size is known here.
    """
    pages = layer_pages(
        model,
        tensor,
        cache_dtype=cache_dtype,
        dtype=dtype,
        block_size=block_size,
        state_dtype=state_dtype,
    )
    return KvCache(
        groups=tuple(_groups(_same_bytes(pages))),
        max_in_flight=max_in_flight,
        prefix_caching=prefix_caching,
    )


def layer_pages(
    model: Architecture,
    tensor: int,
    *,
    cache_dtype: str = "auto",
    dtype: str | None = None,
    block_size: int = BLOCK_SIZE,
    state_dtype: str = "auto",
) -> list[Page | None]:
    """The page of each layer on one of `tensor` ranks, before pages are made equal."""
    width = _cache_bytes(cache_dtype, dtype or model.dtype)
    own = max(BITS[dtype or model.dtype] // 8, 1)
    recurrent = _recurrent_bytes(model, state_dtype, own)
    states = [_state_bytes(s, tensor, own, recurrent) for s in model.layers if isinstance(s, State)]
    attention = [a for a in model.layers if isinstance(a, Attention)]
    state_page = max(states, default=0)
    if states and attention:
        per_token = max(_token_bytes(a, tensor, width) for a in attention)
        step = max(block_size, 128) if model.mla else block_size
        block_size = max(block_size, step * -(-state_page // (step * per_token)))
        state_page = block_size * per_token
    pages: list[Page | None] = []
    for layer in model.layers:
        if layer is None:
            pages.append(None)
        elif isinstance(layer, State):
            checkpoints = int(layer.kind == "mamba2")
            pages.append(Page("state", block_size, state_page, checkpoints=checkpoints))
        else:
            nbytes = block_size * _token_bytes(layer, tensor, width)
            pages.append(Page(layer.kind, block_size, nbytes, layer.window))
    return pages


def _cache_bytes(cache_dtype: str, dtype: str) -> int:
    if cache_dtype not in CACHE_BYTES:
        raise RigError(
            f"the plan does not know how large a KV cache of type {cache_dtype} is",
            next_step=f"plan with one of {', '.join(CACHE_BYTES)}",
        )
    return CACHE_BYTES[cache_dtype] or max(BITS[dtype] // 8, 1)


def _token_bytes(attention: Attention, tensor: int, width: int) -> int:
    heads = 1 if attention.kind == "mla" else max(1, attention.kv_heads // tensor)
    return heads * (attention.head_size + attention.value_head_size) * width


def _state_bytes(state: State, tensor: int, width: int, recurrent: int) -> int:
    """Bytes of a request's state in one layer: its convolution's and its recurrence's."""
    groups = state.groups if state.groups % tensor == 0 else tensor
    if state.kind == "conv":
        return state.inner // tensor * (state.kernel - 1) * width
    if state.kind == "mamba1":
        inner = state.inner // tensor
        return inner * (state.kernel - 1) * width + inner * state.state * recurrent
    if state.kind == "mamba2":
        across = (state.inner + 2 * groups * state.state) // tensor
        kept = state.heads // tensor * state.head_size * state.state
    else:
        across = (state.inner + 2 * state.groups * state.key_head_size) // tensor
        kept = state.heads // tensor * state.head_size * state.key_head_size
    return across * (state.kernel - 1) * width + kept * recurrent


def _recurrent_bytes(model: Architecture, state_dtype: str, width: int) -> int:
    """Bytes of a value of the recurrence: a few families ask for more than their own type."""
    said = state_dtype
    if said == "auto" and model.model_type.startswith("nemotron_h"):
        said = str(model.text.get("mamba_ssm_cache_dtype") or "float32")
    elif said == "auto" and model.model_type.startswith("qwen3_5"):
        said = str(model.text.get("mamba_ssm_dtype") or "auto")
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(said, width)


def _same_bytes(pages: Sequence[Page | None]) -> list[Page | None]:
    """Make all pages as large as the largest one, by more tokens or else by padding."""
    largest = max((page.nbytes for page in pages if page), default=0)
    if len({(page.kind, page.window) for page in pages if page}) <= 1:
        return list(pages)  # of one kind: one group, each layer with its own size
    found: list[Page | None] = []
    for page in pages:
        if page is None or page.nbytes == largest:
            found.append(page)
        elif page.kind != "state" and largest % page.nbytes == 0:
            found.append(replace(page, tokens=page.tokens * largest // page.nbytes, nbytes=largest))
        else:
            found.append(replace(page, nbytes=largest))
    return found


def _groups(pages: Sequence[Page | None]) -> list[Group]:
    """Group the layers: groups of one kind, with as many layers each as the rarest kind has."""
    buckets: dict[tuple[str, int, int], list[int]] = {}
    for number, page in enumerate(pages):
        if page is not None:
            buckets.setdefault((page.kind, page.window, page.tokens), []).append(number)
    if not buckets:
        return []
    fewest, most = min(map(len, buckets.values())), max(map(len, buckets.values()))
    size = most if most < fewest * 1.5 else fewest
    found = []
    for layers in buckets.values():
        count = math.ceil(len(layers) / size)
        for first in range(count):
            some = [(n, page) for n in layers[first::count] if (page := pages[n]) is not None]
            found.append(Group(some[0][1], tuple((n, page.nbytes) for n, page in some)))
    return found
