"""What a family of towers is, and how a test builds and runs one.

A family is a few lines: a tiny configuration, the class that vLLM itself runs, and the call
that vLLM's model makes. Everything else (weights, devices, the engine's context) is here and
the same for all.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import vllm
import vllm._custom_ops
import vllm.model_executor.layers.rotary_embedding as rotary_embedding
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    destroy_distributed_environment,
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.utils.torch_utils import set_default_torch_dtype

_BUILD = Path(__file__).resolve().parents[2] / "build"


@dataclass(frozen=True)
class Family:
    """One family of towers, tiny in size and real in structure.

    Attributes:
        name: The family's name, as its module's.
        build: Makes the tower on the default device, in the default dtype. Where a model marks
            several modules together as its tower, they are the children of one module, under
            the model's names. Parameters are filled later; buffers that a checkpoint would
            fill, `build` must fill.
        inputs: Host inputs by case, for a dtype: one image or clip, several, different sizes.
            Tensors are what a model gets on its device. What it keeps on the host (grids,
            lengths) is given in lists and numbers.
        run: Calls the tower as its model does, with one case's inputs; the result is a tensor,
            or a list or tuple of them.
        why_not: Why this family cannot be built, or must not stream; empty if it can.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.dtype], Mapping[str, Any]]
    run: Callable[[nn.Module, Any], Any]
    why_not: str = ""


@cache
def _declare_kernels() -> torch.library.Library:
    """Name the kernels that some activations look up when built, where none are compiled.

    The towers run their native forms: a call of such a name raises, for nothing implements it.
    """
    library = torch.library.Library("_C", "FRAGMENT")
    for name in ("gelu_new", "gelu_fast", "gelu_quick"):
        if not hasattr(torch.ops._C, name):
            library.define(f"{name}(Tensor! out, Tensor input) -> ()")
    return library


@contextmanager
def engine_context() -> Iterator[VllmConfig]:
    """The part of an engine that a tower needs: a configuration and a world of one.

    One thread: tiny towers gain nothing from more, which on a busy machine wait for each other.
    """
    _declare_kernels()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = VllmConfig(compilation_config=CompilationConfig(custom_ops=["none"]))
    with (
        tempfile.TemporaryDirectory() as folder,
        set_current_vllm_config(config),
        torch.no_grad(),
    ):
        init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
        initialize_model_parallel(1)
        try:
            yield config
        finally:
            destroy_model_parallel()
            destroy_distributed_environment()
            rotary_embedding._ROPE_DICT.clear()
            torch.set_num_threads(threads)


def build_tower(
    family: Family,
    dtype: torch.dtype,
    device: torch.device | None = None,
    seed: int = 0,
) -> nn.Module:
    """A family's tower with weights, ready to run; the same weights on every device."""
    # Ropes are shared between towers, also those of another device.
    rotary_embedding._ROPE_DICT.clear()
    placed: AbstractContextManager[Any] = nullcontext() if device is None else device
    with placed, set_default_torch_dtype(dtype):
        tower = family.build()
    fill(tower, seed)
    prepare_linears(tower)
    return tower.eval()


def fill(module: nn.Module, seed: int = 0) -> None:
    """Give every parameter its own values, which depend on its name, its shape and the seed.

    Matrices keep the size of what they multiply; scales lie around one and biases around zero,
    none of them at it: a norm that is skipped, or given to another block, is seen.
    """
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(seed * 2**32 + zlib.crc32(name.encode()))
        values = torch.randn(parameter.shape, generator=generator, device="cpu")
        if parameter.dim() > 1:
            values *= math.sqrt(parameter.shape[0] / parameter.numel())
        else:
            values *= 0.1
            values += 0.0 if name.endswith("bias") else 1.0
        with torch.no_grad():
            parameter.requires_grad_(False).copy_(values)


def prepare_linears(module: nn.Module) -> None:
    """Do for linear layers what the loader does on the CPU, but keep their weights unpacked."""
    for layer in module.modules():
        if hasattr(layer, "quant_method"):
            layer.cpu_linear = nn.functional.linear


@contextmanager
def new_parameters_on_conversion() -> Iterator[None]:
    """Let `Module.to` make parameters anew: the stand-in's cannot be rebound to another dtype."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)


def to_device(tree: Any, device: torch.device | str) -> Any:
    """The same lists, tuples and mappings with their tensors on a device."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors in a family's result, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal random numbers on the host, the same in every process and for every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(dtype)


def outputs(family: Family, tower: nn.Module, inputs: Any) -> list[torch.Tensor]:
    """What a tower computes from one case's inputs; at least one tensor."""
    found = tensors(family.run(tower, inputs))
    assert found
    return found


def equal(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> bool:
    """Equal bit for bit, in values, shapes and dtypes."""
    return len(these) == len(those) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(these, those, strict=True)
    )


@cache
def standin() -> Any:
    """The module of the stand-in accelerator, which the patched tree holds among its tests.

    Raises:
        FileNotFoundError: No patched tree is there.
    """
    return _load("tests/models/multimodal/standin_accelerator.py")


@cache
def standin_runtime() -> Any:
    """The module that streams to the stand-in, of the same tree.

    Raises:
        FileNotFoundError: No patched tree is there.
    """
    # Its own import means that tree's `tests`, and not the package of this name here.
    with patch.dict(sys.modules, {"tests.models.multimodal.standin_accelerator": standin()}):
        return _load("tests/model_executor/offloader/towers/standin_runtime.py")


def _load(name: str) -> Any:
    version = vllm.__version__.partition("+")[0]
    trees = [_BUILD / f"vllm-{version}", *sorted(_BUILD.glob("vllm-*"), reverse=True)]
    for tree in trees:
        if (tree / name).is_file():
            spec = importlib.util.spec_from_file_location(Path(name).stem, tree / name)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise FileNotFoundError(f"{name} in no tree under {_BUILD}: run `./rig apply`")


def standin_accelerator() -> AbstractContextManager[torch.device]:
    """Make the stand-in accelerator usable in this thread; gives its device."""
    return standin().standin_accelerator()  # type: ignore[no-any-return]
