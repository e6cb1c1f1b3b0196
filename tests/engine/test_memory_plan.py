"""The plan against the engine's own figures: weights of each rank, KV cache, streamed tower.

The engine builds small models of many architectures, and a Qwen3-VL-2B of real size, for 1, 2 and
4 tensor parallel ranks (tests/engine/in_the_engine/memory_facts.py); the plan knows only their
configs and the headers of their weights.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.layout import layout_of_this_checkout
from rig.memory.config_keys import DEFAULTS
from rig.memory.kv import kv_cache, layer_pages
from rig.memory.model import Model
from rig.memory.shards import Sharing, stage_weights
from rig.memory.source import read_folder, read_model
from rig.memory.tower import streamed_tower
from rig.pins import find_pin
from rig.rehearsal.environment import EngineEnvironment
from rig.rehearsal.rehearse import ready_environment
from rig.rehearsal.stage import make_model

from .conftest import built_cpu_wheel

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

HERE = Path(__file__).parent / "in_the_engine"
SCRIPTS = layout_of_this_checkout().root / "scripts"
MEMORY = 2**30
SIZES = (1, 2, 4)
NAMES = (
    *("llama", "qwen2", "mistral", "mixtral", "qwen3_moe", "gemma2", "gemma3_text"),
    *("deepseek_v2", "phi3", "qwen3_next", "granitemoehybrid", "jamba", "falcon", "gpt_oss"),
    *("llama-awq", "llama-gptq", "llama-w4a16", "llama-w8a8"),
)
TOWERS = ("qwen3_vl", "qwen3_vl-2b")

# The published shape of Qwen3-VL-2B.
QWEN3_VL_2B: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": True,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 28,
        "intermediate_size": 6144,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5000000,
            "mrope_section": [24, 20, 20],
            "mrope_interleaved": True,
        },
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_heads": 16,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 2048,
        "num_position_embeddings": 2304,
        "in_channels": 3,
        "deepstack_visual_indexes": [5, 11, 17],
    },
}


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[EngineEnvironment, int]]:
    """The newest engine that runs without a GPU, and the lock under which it stays there."""
    layout = layout_of_this_checkout()
    pin = find_pin(layout, "0.32.0")
    with ready_environment(layout, pin, built_cpu_wheel(layout, pin)) as ready:
        yield ready


@pytest.fixture(scope="module")
def models(engine: tuple[EngineEnvironment, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models."""
    environment, lock = engine
    top = tmp_path_factory.mktemp("models")
    _run(environment, "tiny_architectures.py", str(top))
    make_model(environment, top / "qwen3_vl", lock=lock)
    (top / "qwen3_vl-2b").mkdir()
    (top / "qwen3_vl-2b" / "config.json").write_text(json.dumps(QWEN3_VL_2B), "utf-8")
    return top


@pytest.fixture(scope="module")
def facts(engine: tuple[EngineEnvironment, int], models: Path) -> dict[str, Any]:
    """What the engine makes of each of them."""
    out = models.with_name("facts.json")
    folders = [str(models / name) for name in (*NAMES, *TOWERS)]
    _run(engine[0], "memory_facts.py", str(out), *folders)
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return found


def _run(environment: EngineEnvironment, script: str, *arguments: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHON"))}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [str(environment.python), "-B", "-P", str(HERE / script), *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-4000:]


def _ranks(facts: dict[str, Any], name: str, size: int, mode: str = "weights") -> list[Any]:
    found = facts[f"{name} {size} {mode}"]
    assert isinstance(found, list), found["error"]
    return found


def _readings(folder: Path) -> dict[str, Model]:
    """A model as its headers say, and as its config alone says."""
    found = {"config": read_model("", config_file=folder)}
    if any(folder.glob("*.safetensors")):
        found["headers"] = read_folder(folder)
    return found


def _sharing(name: str, size: int, mode: str = "weights") -> Sharing:
    dtype = "F16" if name.endswith("gptq") else "BF16"
    return Sharing(size, dtype=dtype, encoder_data=mode == "data", as_loaded=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*NAMES, *TOWERS])
def test_weights_of_each_rank(facts: dict[str, Any], models: Path, name: str, size: int) -> None:
    for mode in ("weights", "data") if name in TOWERS else ("weights",):
        ranks = _ranks(facts, name, size, mode)
        for how, model in _readings(models / name).items():
            [stage], towers = stage_weights(
                model.architecture, model.tensors, model.quantization, _sharing(name, size, mode)
            )
            ours = stage.language + sum(t.nbytes for t in towers)
            for rank in ranks:
                allowed = 0.005 if how == "headers" else 0.02
                assert ours == pytest.approx(rank["weights"], rel=allowed), (how, mode)
                assert sum(t.nbytes for t in towers) == rank["tower"], (how, mode)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*NAMES, *TOWERS])
def test_kv_cache_is_the_engines(facts: dict[str, Any], models: Path, name: str, size: int) -> None:
    [theirs, *_] = _ranks(facts, name, size)
    model = read_model("", config_file=models / name).architecture
    how: dict[str, Any] = {
        "dtype": "BF16",
        "block_size": theirs["block_size"],
        "state_dtype": theirs["state_dtype"],
    }
    pages = sorted([page.tokens, page.nbytes] for page in layer_pages(model, size, **how) if page)
    assert pages == theirs["pages"]
    cache = kv_cache(
        model,
        size,
        max_in_flight=theirs["in_flight"],
        prefix_caching=theirs["mamba_mode"] == "align",
        **how,
    )
    assert len(cache.groups) == theirs["num_groups"]
    blocks = MEMORY // cache.bytes_per_block(range(len(model.layers)))
    assert blocks == theirs["num_blocks"]
    assert cache.tokens(blocks, 4096) == theirs["tokens"]


@pytest.mark.parametrize("mode", ["weights", "data"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TOWERS)
def test_streamed_tower_is_the_streamers(
    facts: dict[str, Any], models: Path, name: str, size: int, mode: str
) -> None:
    [theirs, *_] = _ranks(facts, name, size, mode)
    model = _readings(models / name).popitem()[1]
    _, towers = stage_weights(
        model.architecture, model.tensors, model.quantization, _sharing(name, size, mode)
    )
    for said in theirs["streams"]:
        ours = streamed_tower(towers, model.architecture.vision, budget=said["budget"])
        assert {
            "streamed": ours.streamed,
            "on_demand": ours.on_demand,
            "resident": ours.resident,
            "ring": ours.ring,
            "host": ours.host,
        } == {key: said[key] for key in ("streamed", "on_demand", "resident", "ring", "host")}
        assert ours.shared == (mode == "data" or size == 1) or not ours.streamed


def test_a_real_engine_loads_the_same(
    engine: tuple[EngineEnvironment, int], models: Path, tmp_path: Path
) -> None:
    """Two real ranks: what they load and what they make of their cache is what the plan says."""
    _run(engine[0], "loaded_bytes.py", str(models / "qwen3_vl"), str(tmp_path))
    model = read_folder(models / "qwen3_vl")
    [stage], towers = stage_weights(
        model.architecture, model.tensors, model.quantization, _sharing("qwen3_vl", 2)
    )
    ours = stage.language + sum(t.nbytes for t in towers)
    for rank in range(2):
        theirs = json.loads((tmp_path / f"rank-{rank}.json").read_text("utf-8"))
        assert ours == pytest.approx(theirs["weights"], rel=0.005)
    said = json.loads((tmp_path / "cache.json").read_text("utf-8"))
    cache = kv_cache(
        model.architecture,
        2,
        dtype="BF16",
        block_size=said["block_size"],
        max_in_flight=said["in_flight"],
    )
    blocks = MEMORY // cache.bytes_per_block(stage.layers)
    assert said["num_blocks"] == blocks
    assert said["tokens"] == cache.tokens(blocks, 512)


def test_what_silent_configs_mean(engine: tuple[EngineEnvironment, int], tmp_path: Path) -> None:
    asked, out = tmp_path / "asked.json", tmp_path / "found.json"
    asked.write_text(json.dumps({kind: list(keys) for kind, keys in DEFAULTS.items()}), "utf-8")
    _run(engine[0], "config_defaults.py", str(out), str(asked))
    assert json.loads(out.read_text("utf-8")) == DEFAULTS


def test_a_wrong_config_is_seen(facts: dict[str, Any], models: Path, tmp_path: Path) -> None:
    """These checks can fail: one more KV head, and both figures are off."""
    shutil.copytree(models / "qwen2", tmp_path / "qwen2")
    path = tmp_path / "qwen2" / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"num_key_value_heads": 8}
    path.write_text(json.dumps(config), "utf-8")
    model = read_model("", config_file=path)
    [theirs, *_] = _ranks(facts, "qwen2", 1)
    pages = layer_pages(model.architecture, 1, dtype="BF16", block_size=theirs["block_size"])
    assert sorted([p.tokens, p.nbytes] for p in pages if p) != theirs["pages"]
    [stage], _ = stage_weights(
        model.architecture, model.tensors, model.quantization, _sharing("qwen2", 1)
    )
    assert stage.language != pytest.approx(theirs["weights"], rel=0.02)
