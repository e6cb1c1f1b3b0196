"""The ways to an all-reduce: torch's own groups (NCCL, gloo), and vLLM's two for PCIe cards."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from p2p_check.spec import Spec

HIDDEN = 4096  # values in a row, for the way that is prepared for one row length
_VIA = re.compile(r"\bvia ((?:P2P|SHM|NET|COLL|NVLS)[\w/]*)")


class RefusedError(Exception):
    """This way cannot be had here."""


class Transport(Protocol):
    """One way, opened on this rank."""

    device: torch.device
    dtype: torch.dtype
    cpu_group: Any

    def all_reduce(self, mine: torch.Tensor) -> torch.Tensor: ...
    def captured(self, mine: torch.Tensor) -> Callable[[], torch.Tensor] | None: ...
    def barrier(self) -> None: ...
    def synchronize(self) -> None: ...
    def used(self) -> list[str]: ...
    def close(self) -> None: ...


def open_transport(spec: Spec, rank: int) -> Transport:
    """Meet the other ranks and make the way ready.

    Raises:
        RefusedError: this way cannot be had here.
    """
    if spec.way in ("custom", "pcie-ipc"):
        return VllmTransport(spec, rank)
    return TorchTransport(spec, rank)


def _meeting_point(spec: Spec) -> str:
    return f"file://{spec.folder / 'meeting'}"  # a file: no port for others to connect to


class TorchTransport:
    """torch.distributed: NCCL between cards, gloo in a rehearsal."""

    dtype = torch.float32

    def __init__(self, spec: Spec, rank: int) -> None:
        self.device = spec.device_of(rank)
        self._spec = spec
        on_cards = spec.device == "cuda"
        if on_cards:
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            "nccl" if on_cards else "gloo",
            init_method=_meeting_point(spec),
            world_size=len(spec.cards),
            rank=rank,
        )
        self.cpu_group = dist.new_group(backend="gloo")

    def all_reduce(self, mine: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(mine)
        return mine

    def captured(self, mine: torch.Tensor) -> Callable[[], torch.Tensor] | None:
        return None

    def barrier(self) -> None:
        dist.barrier(group=self.cpu_group)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def used(self) -> list[str]:
        return nccl_transports(self._spec.folder)

    def close(self) -> None:
        dist.destroy_process_group()


def nccl_transports(folder: Path) -> list[str]:
    """What NCCL's own lines in this folder say it moved data by, such as "P2P/CUMEM"."""
    found: set[str] = set()
    for path in folder.glob("nccl.*"):
        found |= set(_VIA.findall(path.read_text(errors="replace")))
    return sorted(found)


class _Warnings(logging.Handler):
    """Keeps what vLLM warns of: that is where it says why a way is refused."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(" ".join(record.getMessage().split()))


class VllmTransport:
    """vLLM's custom all-reduce, or FlashInfer's over PCIe, made as the engine makes them."""

    def __init__(self, spec: Spec, rank: int) -> None:
        warnings = _Warnings()
        try:
            from vllm.config import VllmConfig, set_current_vllm_config
            from vllm.distributed import parallel_state
        except ImportError as error:
            raise RefusedError(f"vLLM cannot be imported: {error}") from error
        logging.getLogger("vllm").addHandler(warnings)
        self._state: Any = parallel_state
        self._way = spec.way
        self.device = spec.device_of(rank)
        self.dtype = torch.float16 if spec.way == "pcie-ipc" else torch.float32
        if spec.device != "cuda":
            raise RefusedError("it needs cards")
        if spec.way == "pcie-ipc" and not _has_pcie_ipc():
            raise RefusedError("this vLLM has no all-reduce by FlashInfer over PCIe IPC")
        torch.cuda.set_device(self.device)
        self._open = ExitStack()
        self._open.enter_context(set_current_vllm_config(VllmConfig()))
        world = len(spec.cards)
        parallel_state.init_distributed_environment(
            world_size=world,
            rank=rank,
            distributed_init_method=_meeting_point(spec),
            local_rank=rank,
            backend="nccl",
        )
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
        self._group: Any = parallel_state.get_tp_group()
        self.cpu_group = self._group.cpu_group
        communicator = self._group.device_communicator
        name = "ca_comm" if spec.way == "custom" else "fi_pcie_ipc_ar_comm"
        self._communicator: Any = getattr(communicator, name)
        self._require(warnings)
        if spec.way == "pcie-ipc":
            self._communicator.setup(
                hidden_dim=HIDDEN,
                dtype=self.dtype,
                capture_sizes=[size // self.dtype.itemsize // HIDDEN for size in spec.sizes],
                tune_cache=spec.folder / "pcie_ipc_tuned.json",
            )
            self._require(warnings)

    def _require(self, warnings: _Warnings) -> None:
        if self._communicator is None or self._communicator.disabled:
            why = "; ".join(warnings.said) or "vLLM did not say why"
            raise RefusedError(f"vLLM does not enable it: {why}")

    def all_reduce(self, mine: torch.Tensor) -> torch.Tensor:
        if self._way == "custom":
            got = self._communicator.custom_all_reduce(mine)
        else:
            rows = mine.view(-1, HIDDEN)
            if not self._communicator.should_use(rows):
                raise RuntimeError(f"{rows.shape[0]} rows of {HIDDEN} are not supported")
            got = self._communicator.all_reduce(rows)
        if got is None:
            raise RuntimeError("vLLM's custom all-reduce does not take this size")
        flat: torch.Tensor = got.view(-1)
        return flat

    def captured(self, mine: torch.Tensor) -> Callable[[], torch.Tensor] | None:
        with self._state.graph_capture(device=self.device) as context:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=context.stream):
                got = self.all_reduce(mine)

        def replay() -> torch.Tensor:
            graph.replay()
            return got

        return replay

    def barrier(self) -> None:
        dist.barrier(group=self.cpu_group)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def used(self) -> list[str]:
        return [type(self._communicator).__name__]

    def close(self) -> None:
        self._state.destroy_model_parallel()
        self._state.destroy_distributed_environment()
        self._open.close()


def _has_pcie_ipc() -> bool:
    import vllm.envs as envs

    return "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC" in envs.environment_variables and bool(
        os.environ.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC")
    )
