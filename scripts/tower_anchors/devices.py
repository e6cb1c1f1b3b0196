"""An accelerator that needs no hardware, and weights that rest on the host beside it.

Every op runs on host tensors inside. Unlike the stand-in of vLLM's tests, which stops at the first
op that an accelerator would refuse, this one asks the `Watch` what to do: a run can go on as if
the weight were on the device, so that one run finds every place, and runs can be compared that
differ in the answer to one question only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tower_anchors.watch import current

DEVICE_TYPE = "standin"
DEVICE = f"{DEVICE_TYPE}:0"
_COPIES = {"aten::_to_copy", "aten::clone", "aten::copy_", "aten::_local_scalar_dense"}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_GETTERS = {
    torch.Tensor.device.__get__: "device",
    torch.Tensor.is_cpu.__get__: "is_cpu",
    torch.Tensor.is_cuda.__get__: "is_cuda",
    torch.Tensor.get_device: "get_device",
    torch.Tensor.type: "type",
}
_ANSWERS: dict[str, Any] = {
    "device": torch.device("cpu"),
    "is_cpu": False,
    "get_device": 0,
}
"""What is said of a resting weight where it is to look as if on the device; `device` is filled
in when the stand-in is registered. `is_cuda` has no such answer: the stand-in is no CUDA device."""


class Held(torch.Tensor):
    """A tensor whose values are those of `held`, a plain host tensor."""

    held: torch.Tensor
    at: str = "cpu"

    def __new__(cls, held: torch.Tensor, /, **_: Any) -> Any:
        # As the class of a parameter, which some make anew, by its class and attributes.
        if isinstance(held, Held) or held.device.type == "meta":
            return nn.Parameter(held, requires_grad=False)
        tensor: Held = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(cls.at),
        )
        tensor.held = held
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode PyTorch takes no view of a subclass whose base was made outside of it.
        with torch.inference_mode(False), torch.no_grad():
            return _run(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{type(self).__name__}({self.held!r})"


class OnDevice(Held):
    """A tensor on the stand-in accelerator."""

    at = DEVICE
    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:
        """Values on the host, which PyTorch refuses to fetch from a subclass."""
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As on any accelerator."""
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy")


class Resting(Held):
    """A weight at rest on the host: to be copied and viewed, not computed on."""

    name: str = "?"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _GETTERS and len(args) == 1 and isinstance(args[0], Resting):
            how = _GETTERS[func]
            truth = current().read(how, args[0].name)
            if not truth and how in _ANSWERS:
                return _ANSWERS[how]
        elif getattr(func, "__name__", "") in ("to", "type_as") and any(
            isinstance(arg, Resting) for arg in (*args[1:], *kwargs.values())
        ):
            # `x.to(weight)` takes the device from the weight, where nobody sees it.
            args, kwargs = _like(func.__name__, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


def _like(name: str, args: Any, kwargs: Any) -> Any:
    others = [a for a in (*args[1:], *kwargs.values()) if isinstance(a, Resting)]
    if current().read(name, others[0].name):
        return args, kwargs
    rest = tree_map_only(Resting, lambda weight: OnDevice(weight.held), (args[1:], kwargs))
    return (args[0], *rest[0]), rest[1]


def rest(held: torch.Tensor, name: str) -> Resting:
    """A weight at rest, by its name."""
    tensor: Resting = Resting(held)
    tensor.name = name
    return tensor


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op on the host tensors inside; what its devices make of it is the watch's matter."""
    name = func._schema.name
    found = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    resting = [t for t in found if isinstance(t, Resting)]
    returns = func._schema.returns
    alias = returns[0].alias_info if returns else None
    views = alias is not None and not alias.is_write
    kind: type[Held] | None = OnDevice
    if resting:
        names = sorted({t.name for t in resting})
        short = name.removeprefix("aten::")
        current().met.update(names)
        if name in _COPIES or views:
            if name == "aten::copy_" and isinstance(args[0], Resting):
                current().compute(short, names)
            kind = Resting
        elif short.startswith("new_") or short.endswith("_like"):
            kind = None if current().read(short, names[0]) else OnDevice
        else:
            current().compute(short, names)
    elif name not in _COPIES:
        _check(name, found, args)
    device = kwargs.get("device")
    if device is not None:
        on_device = torch.device(device).type == DEVICE_TYPE
        if on_device:
            kind, kwargs = OnDevice, kwargs | {"device": "cpu"}
        elif torch.device(device).type == "meta" or not resting:
            kind = None
    held_args, held_kwargs = tree_map_only(Held, lambda t: t.held, (args, kwargs))
    result = func(*held_args, **held_kwargs)
    if alias is not None and alias.is_write:
        return kwargs.get("out", args[0])
    if kind is Resting:
        return tree_map_only(torch.Tensor, lambda t: rest(t, names[0]), result)
    return tree_map_only(torch.Tensor, kind, result) if kind else result


def _check(name: str, found: list[torch.Tensor], args: tuple[Any, ...]) -> None:
    """As on a GPU: a host scalar may join in, and host indices; other host tensors may not."""
    hosts = [t for t in found if not isinstance(t, Held) and t.dim() and t.device.type == "cpu"]
    if name in _INDEXING and isinstance(args[0], OnDevice):
        indices = [t for t in tree_leaves(args[1]) if isinstance(t, torch.Tensor)]
        hosts = [t for t in hosts if not any(t is index for index in indices)]
    if hosts:
        current().mix(name.removeprefix("aten::"))


class _ToDevice(TorchDispatchMode):
    """Serves ops that name the device but have no tensor there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        named = device is not None and torch.device(device).type == DEVICE_TYPE
        if named and not any(isinstance(t, Held) for t in tree_leaves((args, kwargs))):
            kwargs = kwargs | {"device": "cpu"}
            return tree_map_only(torch.Tensor, OnDevice, func(*args, **kwargs))
        return func(*args, **kwargs)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Any:
    return OnDevice(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    source, target_held = (getattr(t, "held", t) for t in (source, target))
    target_held.copy_(source)
    return target


@cache
def _register_once() -> torch.library.Library:
    """Also what `torch.tensor(data, device=...)` calls, which no mode sees."""
    _setup_privateuseone_for_python_backend(DEVICE_TYPE)
    # Autocast asks for it, also where it is told to do nothing.
    torch.get_device_module(DEVICE_TYPE).get_amp_supported_dtype = list
    _ANSWERS["device"] = torch.device(DEVICE)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    return library


@contextmanager
def standin_accelerator() -> Iterator[torch.device]:
    """Make the stand-in usable in this thread; gives its device."""
    _register_once()
    with _ToDevice():
        yield torch.device(DEVICE)
