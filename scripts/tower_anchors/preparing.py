"""What prepares an encode outside any forward: the helpers of encoder CUDA graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from tower_anchors.recipe import OnHost

ITEMS = 4
"""Items that a graph is prepared for, at most."""
TOKENS = 64
"""It is prepared for, at least."""


def given(kwargs: Mapping[str, Any], device: torch.device | str) -> dict[str, Any]:
    """Keyword arguments as vLLM's runner hands them over; new tensors on each call."""

    def move(value: Any) -> Any:
        if isinstance(value, OnHost):
            return value.tensor.clone()
        if isinstance(value, torch.Tensor):
            return value.clone().to(device)
        if isinstance(value, (list, tuple)):
            return type(value)(move(v) for v in value)
        if isinstance(value, Mapping):
            return {key: move(v) for key, v in value.items()}
        return value

    return {key: move(value) for key, value in kwargs.items()}


def graph_calls(
    model: Any, cases: Mapping[str, Mapping[str, Any]], device: torch.device
) -> dict[str, Callable[[Any], Any]]:
    """The helpers of encoder CUDA graphs that a model has, called as their manager calls them.

    A graph itself is not captured: what is recorded in one is run as it is.
    """
    if not hasattr(model, "prepare_encoder_cudagraph_capture_inputs"):
        return {}
    calls: dict[str, Callable[[Any], Any]] = {}
    for path, budget, axis_keys in _paths(model):
        suffix = "" if path == "default" else f" {path}"

        def capture(m: Any, path: str = path, budget: int = budget, axes: Any = axis_keys) -> Any:
            return _called(
                m.prepare_encoder_cudagraph_capture_inputs,
                token_budget=budget,
                max_batch_size=ITEMS,
                max_frames_per_batch=2 * ITEMS,
                device=device,
                dtype=torch.float32,
                path=path,
                axis_keys=axes,
            )

        def forward(m: Any, path: str = path, capture: Callable[[Any], Any] = capture) -> Any:
            encode = partial(m.encoder_cudagraph_forward, dict(capture(m)))
            return _called(encode, path=path)

        calls[f"graph inputs{suffix}"] = capture
        calls[f"graph forward{suffix}"] = forward
        for case, kwargs in cases.items():

            def replay(m: Any, kwargs: Mapping[str, Any] = kwargs, path: str = path) -> Any:
                whole = given(kwargs, device)
                items = range(len(m.get_encoder_cudagraph_item_specs(whole)))
                chosen = m.select_encoder_cudagraph_items(whole, list(items))
                return _called(
                    m.prepare_encoder_cudagraph_replay_buffers,
                    mm_kwargs=chosen,
                    max_batch_size=ITEMS,
                    max_frames_per_batch=4 * ITEMS,
                    path=path,
                )

            calls[f"graph buffers{suffix}: {case}"] = replay
    return calls


def _paths(model: Any) -> list[tuple[str, int, Any]]:
    """Name, token budget and first keys of the axes of each path that is captured by itself."""
    try:
        config = model.get_encoder_cudagraph_config()
    except Exception:
        return [("default", TOKENS, None)]  # the helpers will say what is wrong
    paths = getattr(config, "paths", None) or {"default": None}
    axes = tuple(axis[0] for axis in getattr(config, "capture_axes", ()))
    return [
        (name, max(TOKENS, getattr(path, "min_token_budget", None) or 0), axes)
        for name, path in paths.items()
    ]


def _called(function: Callable[..., Any], **kwargs: Any) -> Any:
    """Releases differ in what these helpers take: what one does not take is left out."""
    wanted = inspect.signature(function).parameters
    made = function(**{key: value for key, value in kwargs.items() if key in wanted})
    # A dataclass of them; a tensor has a method of that name.
    return made if isinstance(made, torch.Tensor) else getattr(made, "values", made)
