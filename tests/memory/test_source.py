"""Reading a model from a folder, a config, a hub; and all that can be wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.memory.headers import Tensor
from rig.memory.source import as_json, of_json, read_folder, read_model, weight_files

from .hub_server import COMMIT, hub
from .makers import LLAMA, TINY, write_model, write_weights

ASK = """
import sys
from pathlib import Path
from rig.errors import RigError
from rig.memory.source import read_model
try:
    model = read_model(sys.argv[1], patience_s=float(sys.argv[2]), refresh="refresh" in sys.argv)
    print("read", len(model.tensors), model.revision, model.measured)
except RigError as error:
    print(error)
"""


def test_a_folder(tmp_path: Path) -> None:
    write_model(tmp_path)
    model = read_folder(tmp_path)
    assert model.measured and model.facts.layers == 2
    assert model.tensors == read_model("", config_file=tmp_path / "config.json").tensors
    assert read_model(str(tmp_path)) == model


def test_a_config_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(LLAMA), "utf-8")
    model = read_model("", config_file=path)
    assert not model.measured
    # 8.03 billion weights of two bytes: the public figure of this shape.
    assert sum(t.nbytes for t in model.tensors) == pytest.approx(8.03e9 * 2, rel=0.001)


def test_several_files_and_an_index(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for part in "ab":
        write_weights(tmp_path / f"{part}.safetensors", [Tensor(part, "F32", (2,))])
    write_weights(tmp_path / "not-in-the-index.safetensors", [Tensor("c", "F32", (2,))])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"b": "b.safetensors", "a": "a.safetensors"}}', "utf-8")
    assert [t.name for t in read_folder(tmp_path).tensors] == ["a", "b"]
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(RigError, match="1 of 2 weight files are not there"):
        read_folder(tmp_path)
    index.write_text("{}", "utf-8")
    with pytest.raises(RigError, match="names no file"):
        read_folder(tmp_path)


def test_mistrals_own_files_count_only_alone(tmp_path: Path) -> None:
    for name in ("consolidated.safetensors", "model.safetensors", "adapter_model.safetensors"):
        (tmp_path / name).touch()
    assert [p.name for p in weight_files(tmp_path)] == ["model.safetensors"]
    (tmp_path / "model.safetensors").unlink()
    assert [p.name for p in weight_files(tmp_path)] == ["consolidated.safetensors"]


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (lambda f: (f / "config.json").unlink(), "holds no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no \\*.safetensors"),
        (lambda f: (f / "config.json").write_text("{"), "holds no JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "holds no table"),
        (lambda f: (f / "config.json").write_text("{}"), "does not say how wide it is"),
        (lambda f: (f / "config.json").write_text('{"hidden_size": "x"}'), "makes no sense"),
        (lambda f: os.truncate(f / "model.safetensors", 100), "is not whole"),
    ],
)
def test_a_folder_that_is_broken(tmp_path: Path, break_it: object, what: str) -> None:
    write_model(tmp_path)
    assert callable(break_it)
    break_it(tmp_path)
    with pytest.raises(RigError, match=what):
        read_model(str(tmp_path))


def test_names_that_mean_nothing(tmp_path: Path) -> None:
    for name in ("./nowhere", "/nowhere/at/all", "a/b/c", "-x", ""):
        with pytest.raises(RigError, match="no such folder"):
            read_model(name)
    (tmp_path / "file").touch()
    with pytest.raises(RigError, match="is a file, not a model"):
        read_model(str(tmp_path / "file"))


def test_what_is_kept_is_what_was_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    model = read_folder(tmp_path, source="some/model", revision=COMMIT)
    assert of_json(as_json(model), "some/model") == model
    assert of_json(as_json(model), "another/model") is None
    for damaged in ("", "{}", "[]", as_json(model)[:-9], '{"layout": 2}'):
        assert of_json(damaged, "some/model") is None


class Asker:
    """Asks a hub from a process of its own, as the command does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, name: str, address: str, *more: str, patience_s: float = 20, **env: str) -> str:
        environment = os.environ | {
            "HF_ENDPOINT": address,
            "HF_HOME": str(self.folder / "hf"),
            "VLLM_RIG_CACHE": str(self.folder / "cache"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **env,
        }
        environment.pop("HF_HUB_OFFLINE", None) if "HF_HUB_OFFLINE" not in env else None
        done = subprocess.run(
            [sys.executable, "-c", ASK, name, str(patience_s), *more],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def test_a_hub_is_asked_once(tmp_path: Path, asker: Asker) -> None:
    write_model(tmp_path / "model")
    count = len(read_folder(tmp_path / "model").tensors)
    expected = f"read {count} {COMMIT} True\n"
    with hub(tmp_path / "model") as (address, asked):
        assert asker.ask("some/model", address) == expected
        before = len(asked)
        assert before
        assert asker.ask("some/model", address) == expected
        assert len(asked) == before
        assert asker.ask("some/model", address, "refresh") == expected
        assert len(asked) > before
        whole = (tmp_path / "model" / "model.safetensors").stat().st_size
        assert whole > 100_000  # and yet no weights were downloaded:
        assert not list((tmp_path / "hf").rglob("*.safetensors"))
    # The hub is gone, and so may be the network.
    assert asker.ask("some/model", address) == expected
    assert asker.ask("some/model", address, HF_HUB_OFFLINE="1") == expected
    [kept] = (tmp_path / "cache" / "models").iterdir()
    kept.write_text("{", "utf-8")
    assert "cannot be reached" in asker.ask("some/model", address)


def test_a_hub_that_says_no(tmp_path: Path, asker: Asker) -> None:
    write_model(tmp_path / "model")
    with hub(tmp_path / "model") as (address, _):
        assert "no such model" in asker.ask("none/model", address)
        assert "the model is gated" in asker.ask("gated/model", address)
        started = time.monotonic()
        assert "did not answer within 2 s" in asker.ask("slow/model", address, patience_s=2)
        assert time.monotonic() - started < 8
        (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
        assert "has no *.safetensors" in asker.ask("some/model", address)
        (tmp_path / "model" / "config.json").unlink()
        assert "has no config.json" in asker.ask("some/model", address)
    assert "HF_HUB_OFFLINE is set" in asker.ask("x/y", address, HF_HUB_OFFLINE="1")


def test_a_header_cut_short_on_the_hub(tmp_path: Path, asker: Asker) -> None:
    write_model(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with hub(tmp_path / "model") as (address, _):
        said = asker.ask("some/model", address)
    assert "error" in said and "read" not in said.split()


def test_what_this_user_has_downloaded_is_used(tmp_path: Path, asker: Asker) -> None:
    top = tmp_path / "hf" / "hub" / "models--some--model"
    write_model(top / "snapshots" / COMMIT)
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text(COMMIT, "utf-8")
    assert asker.ask("some/model", "http://127.0.0.1:9").startswith("read ")
    assert TINY["num_hidden_layers"] == 2
