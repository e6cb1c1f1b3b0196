"""What the check calls in vLLM is there, in every pinned release: read from the source.

The calls themselves need cards, so no test here can make them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rig.layout import layout_of_this_checkout
from rig.pins import find_pin, read_pins
from rig.series.apply import apply

VERSIONS = [pin.version for pin in read_pins(layout_of_this_checkout())]
COMMUNICATORS = "vllm/distributed/device_communicators"
CALLS = [
    (
        "vllm/distributed/parallel_state.py",
        "init_distributed_environment",
        {"world_size", "rank", "distributed_init_method", "local_rank", "backend"},
    ),
    (
        "vllm/distributed/parallel_state.py",
        "initialize_model_parallel",
        {"tensor_model_parallel_size"},
    ),
    ("vllm/distributed/parallel_state.py", "graph_capture", {"device"}),
    ("vllm/distributed/parallel_state.py", "get_tp_group", set()),
    ("vllm/distributed/parallel_state.py", "destroy_model_parallel", set()),
    ("vllm/distributed/parallel_state.py", "destroy_distributed_environment", set()),
    (f"{COMMUNICATORS}/custom_all_reduce.py", "CustomAllreduce.custom_all_reduce", {"input"}),
    ("vllm/config/vllm.py", "set_current_vllm_config", {"vllm_config"}),
]
PCIE_IPC = f"{COMMUNICATORS}/flashinfer_pcie_ipc_all_reduce.py"
SETUP = {"hidden_dim", "dtype", "capture_sizes", "tune_cache"}


@pytest.fixture(scope="module", params=VERSIONS)
def tree(request: pytest.FixtureRequest) -> Path:
    layout = layout_of_this_checkout()
    folder = layout.tree(request.param)
    return folder if folder.is_dir() else apply(layout, find_pin(layout, request.param)).folder


def parameters(file: Path, name: str) -> set[str] | None:
    """The parameters of a function or `Class.method` at the top of a module."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    *classes, function = name.split(".")
    for cls in classes:
        body = next(n.body for n in body if isinstance(n, ast.ClassDef) and n.name == cls)
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            args = node.args
            return {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    return None


@pytest.mark.parametrize(("file", "name", "wanted"), CALLS)
def test_a_function_takes_what_it_is_given(
    file: str, name: str, wanted: set[str], tree: Path
) -> None:
    found = parameters(tree / file, name)
    assert found is not None, f"{name} is not in {file}"
    assert wanted <= found


def test_the_communicators_have_their_names(tree: Path) -> None:
    text = (tree / COMMUNICATORS / "cuda_communicator.py").read_text()
    assert "self.ca_comm" in text
    has_ipc = (tree / PCIE_IPC).is_file()
    assert ("self.fi_pcie_ipc_ar_comm" in text) is has_ipc
    environment = (tree / "vllm/envs.py").read_text()
    assert ('"VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"' in environment) is has_ipc


def test_pcie_ipc_takes_what_it_is_given(tree: Path) -> None:
    file = tree / PCIE_IPC
    if not file.is_file():
        assert tree.name != "vllm-0.33.0"
        return
    assert parameters(file, "FlashInferPcieIpcAllReduce.setup") == SETUP | {"self"}
    assert parameters(file, "FlashInferPcieIpcAllReduce.should_use") == {"self", "inp"}
    assert parameters(file, "FlashInferPcieIpcAllReduce.all_reduce") == {"self", "inp"}
