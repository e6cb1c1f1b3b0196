"""Builds a registered model on the stand-in: its towers for real, its language model not at all."""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
import vllm.config.model as model_config_module
import vllm.model_executor.layers.rotary_embedding as rotary_embedding
import vllm.tokenizers.registry as tokenizers
import vllm.transformers_utils.processor as processors
from tests.towers.family import fill, new_parameters_on_conversion, prepare_linears
from torch import nn
from vllm.config import CompilationConfig, ModelConfig, VllmConfig
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.utils.torch_utils import set_default_torch_dtype

from tower_anchors.stubs import Stub, StubTokenizer, any_processor


@dataclass(frozen=True)
class Mark:
    """One mark of a tower, as the model's `__init__` made it.

    Attributes:
        how: the function that marked it, and whether by the modules' types.
        modalities: what it serves.
        names: the modules it names.
    """

    how: str
    modalities: tuple[str, ...]
    names: tuple[str, ...]

    def covers(self, parameter: str) -> bool:
        return any(parameter == name or parameter.startswith(f"{name}.") for name in self.names)


@dataclass
class Built:
    """A model on the stand-in.

    Attributes:
        model: the registered class's instance; eval, filled.
        config: vLLM's, of which the model was made.
        marks: of its towers.
        language: names of what was marked as its language model.
    """

    model: nn.Module
    config: VllmConfig
    marks: list[Mark] = field(default_factory=list)
    language: list[str] = field(default_factory=list)


def vllm_config_of(hf_config: Any, architecture: str, **options: Any) -> VllmConfig:
    """vLLM's configuration of a model that exists nowhere but in its configuration."""
    hf_config.architectures = [architecture]
    with patch.object(model_config_module, "get_config", lambda *_, **__: hf_config):
        wanted: dict[str, Any] = {
            "model": _empty_folder().name,
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "enforce_eager": True,
            "mm_encoder_only": True,
            "max_model_len": 64,
        }
        model_config = ModelConfig(**(wanted | options))
        model_config.skip_tokenizer_init = False  # so that models ask for one, and get the stub
        return VllmConfig(
            model_config=model_config, compilation_config=CompilationConfig(custom_ops=["none"])
        )


@cache
def _empty_folder() -> tempfile.TemporaryDirectory[str]:
    """Where the models would lie; an existing folder is not looked for on the net."""
    return tempfile.TemporaryDirectory()


def build(
    model_class: type[nn.Module],
    config: VllmConfig,
    device: torch.device,
    *,
    patches: Callable[[], Any] | None = None,
) -> Built:
    """Build a model of a class on a device, with its own values in each parameter."""
    rotary_embedding._ROPE_DICT.clear()
    config.device_config.device = device  # some make their parameters there, after all is built
    built = Built(nn.Module(), config)
    with ExitStack() as stack:
        # It looks through the layers of the language model.
        stack.enter_context(
            patch.object(model_class, "set_moe_parameters", lambda *_: None, create=True)
        )
        if patches is not None:
            stack.enter_context(patches())
        stack.enter_context(_recorded_marks(built))
        stack.enter_context(new_parameters_on_conversion())
        stack.enter_context(set_default_torch_dtype(torch.float32))
        stack.enter_context(device)
        built.model = initialize_model(config, model_class=model_class)
    fill_real(built.model)
    prepare_linears(built.model)
    built.model.eval()
    return built


def fill_real(model: nn.Module) -> None:
    """Give values to every parameter that has any: parts that were not built have none."""
    meta = {
        (module, name): parameter
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.device.type == "meta"
    }
    for module, name in meta:
        module._parameters[name] = None
    try:
        fill(model)
    finally:
        for (module, name), parameter in meta.items():
            module._parameters[name] = parameter


@contextmanager
def without_files() -> Iterator[None]:
    """Give a model stubs where it would read a tokenizer's or a processor's files."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(tokenizers, "cached_get_tokenizer", StubTokenizer))
        loaders = {n: getattr(processors, n) for n in _PROCESSOR_LOADERS if hasattr(processors, n)}
        for name, module in list(sys.modules.items()):
            if name.startswith("vllm."):
                for loader, original in loaders.items():
                    if vars(module).get(loader) is original:
                        stack.enter_context(patch.object(module, loader, any_processor))
        yield


_PROCESSOR_LOADERS = (
    "cached_get_processor",
    "cached_get_processor_without_dynamic_kwargs",
    "cached_get_feature_extractor",
    "cached_get_image_processor",
    "cached_get_video_processor",
)


@contextmanager
def _recorded_marks(built: Built) -> Iterator[None]:
    """Note what models mark, and put stubs where they would build a language model."""
    mark_tower = SupportsMultiModal._mark_tower_model
    mark_language = SupportsMultiModal._mark_language_model
    mark_composite = SupportsMultiModal._mark_composite_model
    in_composite = [False]

    @contextmanager
    def tower(
        self: Any, vllm_config: Any, modalities: Any, *, targets: Any = None
    ) -> Iterator[None]:
        how = "_mark_composite_model" if in_composite[0] else "_mark_tower_model"
        kinds = {modalities} if isinstance(modalities, str) else set(modalities)
        with mark_tower(self, vllm_config, modalities, targets=targets):
            yield
        names = tuple(dict.fromkeys(self._tower_model_names))
        built.marks.append(Mark(how, tuple(sorted(kinds)), names))

    @contextmanager
    def language(self: Any, vllm_config: Any, *, targets: Any = None) -> Iterator[None]:
        # contextlib's __enter__ lies between.
        frame = sys._getframe(2)
        with ExitStack() as stack:
            if targets is None:
                stack.enter_context(_stubs_for(frame, vllm_config))
            stack.enter_context(mark_language(self, vllm_config, targets=targets))
            yield
        built.language.extend(self._language_model_names)

    @contextmanager
    def composite(self: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        in_composite[0] = True
        try:
            with mark_composite(self, *args, **kwargs):
                yield
        finally:
            in_composite[0] = False

    with (
        patch.object(SupportsMultiModal, "_mark_tower_model", tower),
        patch.object(SupportsMultiModal, "_mark_language_model", language),
        patch.object(SupportsMultiModal, "_mark_composite_model", composite),
    ):
        yield


@contextmanager
def _stubs_for(frame: Any, vllm_config: VllmConfig) -> Iterator[None]:
    """Stubs for what the `with` block at a frame's line calls to assign to `self`."""
    names = _called_in_block(frame.f_code, frame.f_lineno)
    scope = frame.f_globals
    known = {name: scope[name] for name in names if name in scope}
    with patch.object(VllmConfig, "with_hf_config", lambda self, *_, **__: self):
        scope.update(dict.fromkeys(known, Stub))
        try:
            yield
        finally:
            scope.update(known)


@cache
def _called_in_block(code: Any, line: int) -> frozenset[str]:
    try:
        lines, first = inspect.getsourcelines(code)
    except OSError:
        return frozenset()
    tree = ast.parse(textwrap.dedent("".join(lines)))
    here = line - first + 1
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and node.lineno <= here < node.body[0].lineno
        and not any("tower" in ast.unparse(item) for item in node.items)
    ]
    return frozenset(
        node.value.func.id
        for block in blocks
        for statement in block.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and any(ast.unparse(target).startswith("self.") for target in node.targets)
    )
