"""vLLM's options: the table that its parser gives, and what is refused by it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rig.box.rigs import find_rig
from rig.errors import RigError
from rig.launch import options_step
from rig.launch.plan import ServeOptions
from rig.options import cache, in_engine
from rig.options.cache import cached_table, key_of, table_of
from rig.options.check import UnknownOptionError, check_arguments, nearest_names, spell_out
from rig.options.table import OptionTable, table_from_engine
from rig.wheel.provenance import Provenance


def optional_number(text: str) -> int | None:
    return None if text in ("", "None") else int(text)


def size(text: str) -> int:
    scale = {"k": 1000, "K": 1024}.get(text[-1:], 0)
    return int(text[:-1]) * scale if scale else int(text)


def size_or_auto(text: str) -> int:
    return -1 if text.lower() == "auto" else size(text)


def table_in_braces(text: str) -> dict[str, object]:
    read = json.loads(text)
    if not isinstance(read, dict):
        raise ValueError
    return read


def parser() -> argparse.ArgumentParser:
    """Of the same make as vLLM's: argparse with aliases, switches, lists, choices and JSON."""
    made = argparse.ArgumentParser()
    made.add_argument("model_tag", nargs="?")
    made.add_argument("--tensor-parallel-size", "-tp", type=int)
    made.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    made.add_argument("--disable-custom-all-reduce", action=argparse.BooleanOptionalAction)
    made.add_argument("--dtype", choices=["auto", "bfloat16", "float16"])
    made.add_argument("--linear-backend", type=str.lower, choices=["auto", "deep_gemm"])
    made.add_argument("--max-model-len", type=size_or_auto)
    made.add_argument("--max-num-seqs", type=size)
    made.add_argument("--seed", type=optional_number)
    made.add_argument("--gpu-memory-utilization", type=float)
    made.add_argument("--limit-mm-per-prompt", type=json.loads)
    made.add_argument("--compilation-config", "-cc", type=table_in_braces)
    made.add_argument("--optimization-level", type=str)
    made.add_argument("--api-key", nargs="+")
    made.add_argument("--hf-token", nargs="?", const="x")
    made.add_argument("--served-model-name", nargs="+")
    made.add_argument("--port", type=int)
    return made


@pytest.fixture(scope="module")
def table() -> OptionTable:
    said = json.loads(json.dumps(in_engine.table(parser())))
    return table_from_engine("9.9.9", said["options"])


def test_the_table_knows_every_spelling_and_what_a_value_looks_like(table: OptionTable) -> None:
    kinds = {option.names[0]: option.kind for option in table.options}
    assert kinds["--tensor-parallel-size"] == "integer"
    assert kinds["--max-num-seqs"] == kinds["--max-model-len"] == "size"
    assert kinds["--gpu-memory-utilization"] == "number"
    assert kinds["--limit-mm-per-prompt"] == "json"
    assert kinds["--compilation-config"] == "object"
    assert kinds["--api-key"] == "text"
    eager = table.option("--no-enforce-eager")
    assert eager is not None and eager.names[0] == "--enforce-eager" and eager.nargs == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--tensor-parallel-size 2 -tp=4 --tensor_parallel_size=2 --tensor-p 2",
        "--enforce-eager --no-enforce-eager --no_enforce_eager",
        "--dtype bfloat16 --linear-backend DEEP_GEMM",
        "--max-model-len 8k --max-model-len auto --max-num-seqs 1K",
        "--seed None --seed -1",
        '--limit-mm-per-prompt {"video":0} --limit-mm-per-prompt.image 2',
        "--compilation-config.pass_config.x true -cc.mode 3 -cc.sizes+ 1,2",
        "-O3 -O 2 -O=1 --optimization-level 0",
        "--api-key a b --hf-token --hf-token x --port 80",
        "--gpu-memory-utilization .9",
        "--served-model-name a.b --served-model-name=-x",
    ],
)
def test_what_vllm_takes_is_taken(table: OptionTable, arguments: str) -> None:
    check_arguments(table, "some/model", arguments.split())


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--enforce-egar", "--enforce-eager"),
        ("--tensor-parallel 2 --tensor-paralel-size=2", "--tensor-parallel-size"),
        ("--kv-cache 2", "no option --kv-cache"),
        ("--made-up.key 2", "no option --made-up"),
        ("--tensor-parallel-size", "expected one argument"),
        ("--tensor-parallel-size --enforce-eager", "expected one argument"),
        ("--enforce-eager=yes", "ignored explicit argument"),
        ("--api-key", "expected at least one argument"),
        ("--compilation-config.mode", "needs a value"),
        ("--tensor-parallel-size two", "'two' is not a whole number"),
        ("--tensor-parallel-size 2k", "'2k' is not a whole number"),
        ("--max-num-seqs auto", "'auto' is not a whole number"),
        ("--gpu-memory-utilization high", "'high' is not a number"),
        ("--limit-mm-per-prompt video=0", "is not JSON"),
        ("--compilation-config 3", "is not JSON in braces"),
        ("--dtype float61", "nearest: float16"),
        ("--dtype BFLOAT16", "'BFLOAT16' is not one of"),
        ("--m 2", "ambiguous option"),
        ("another-model", "belongs to no option"),
    ],
)
def test_what_vllm_refuses_is_refused_with_the_way_out(
    table: OptionTable, arguments: str, said: str
) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        check_arguments(table, "some/model", arguments.split())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "said, means",
    [
        (
            "--te 2 -tp=4 --tensor_p 8",
            "--tensor-parallel-size 2 --tensor-parallel-size=4 --tensor-parallel-size 8",
        ),
        (
            "--no-enf --enf --no_enforce_eager",
            "--no-enforce-eager --enforce-eager --no-enforce-eager",
        ),
        ("--lim.image 2 -cc.mode 3", "--limit-mm-per-prompt.image 2 --compilation-config.mode 3"),
        (
            "--api a b --seed -1 -O3 --ma 3 --other x",
            "--api-key a b --seed -1 -O3 --ma 3 --other x",
        ),
        ("--served-model-name a_b --serv=--te", "--served-model-name a_b --served-model-name=--te"),
    ],
)
def test_beginnings_and_aliases_become_whole_names(
    table: OptionTable, said: str, means: str
) -> None:
    assert spell_out(table, said.split()) == tuple(means.split())


@pytest.mark.parametrize(
    "given, refused",
    [
        ("--te 2 -pp 2", "--te"),
        ("-tp 2 --tensor_par=2", "--tensor_par"),
        ("-tp 2 --tensor_parallel_size 2 -cc.mode 3 --limit-mm-per-prompt.a_b 1 --seed -1", ""),
        ("--no_enforce_eager --no-enforce-eager", ""),
    ],
)
def test_a_plan_over_boxes_refuses_beginnings_that_it_did_not_see(
    table: OptionTable, monkeypatch: pytest.MonkeyPatch, given: str, refused: str
) -> None:
    monkeypatch.setattr(options_step, "cached_table", lambda _: table)
    options = ServeOptions(
        "m", Path("/e/python"), Path("/logs"), extra_arguments=tuple(given.split())
    )
    built = SimpleNamespace(provenance=provenance())
    if not refused:
        options_step.refuse_beginnings(find_rig("4x3090"), options, built)
        return
    with pytest.raises(RigError, match=f"vLLM takes {refused} for --tensor-parallel-size"):
        options_step.refuse_beginnings(find_rig("4x3090"), options, built)


def test_one_of_our_own_options_may_be_meant(table: OptionTable) -> None:
    with pytest.raises(UnknownOptionError, match="--dry-run"):
        check_arguments(table, "some/model", ["--dry-rn"], ["--dry-run", "--rig"])


def test_the_nearest_names_come_first(table: OptionTable) -> None:
    assert nearest_names(table, "--gpu-memory-utilisation")[0] == "--gpu-memory-utilization"
    assert nearest_names(table, "--eager")[0] == "--enforce-eager"
    assert nearest_names(table, "--zzzz") == []


def provenance(**changes: object) -> Provenance:
    made = Provenance(
        schema_=1,
        version="9.9.9+rig.1",
        release="9.9.9",
        commit="a" * 40,
        flavour="cpu",
        series="b" * 64,
        tree="c" * 40,
        patches=(),
        files={"vllm/x.py": "d" * 64},
        removed=(),
    )
    return made.model_copy(update=changes)


def test_the_engine_is_asked_once_for_each_build(
    table: OptionTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(_: Path, version: str) -> OptionTable:
        asked.append(version)
        return table

    monkeypatch.setattr(cache, "ask_engine", ask)
    told: list[str] = []
    python, built = Path("/e/python"), provenance()
    assert cached_table(built, tmp_path) is None
    assert table_of(python, built, tmp_path, told.append) == table
    assert table_of(python, built, tmp_path, told.append) == table
    assert asked == ["9.9.9+rig.1"] and len(told) == 1
    assert cached_table(built, tmp_path) == table
    for other in (provenance(files={"vllm/x.py": "e" * 64}), provenance(tree="e" * 40)):
        assert key_of(other) != key_of(built)
        assert cached_table(other, tmp_path) is None
    (kept,) = (tmp_path / "options").iterdir()
    kept.write_text("{")
    assert cached_table(built, tmp_path) is None
    table_of(python, built, tmp_path)
    assert len(asked) == 2 and cached_table(built, tmp_path) == table


def test_a_cache_that_cannot_be_written_only_costs_time(
    table: OptionTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "ask_engine", lambda *_: table)
    (tmp_path / "options").touch()
    assert table_of(Path("/e"), provenance(), tmp_path) == table


def test_an_engine_that_cannot_be_imported_is_named_with_its_reason() -> None:
    with pytest.raises(RigError) as caught:
        cache.ask_engine(Path(sys.executable), "9.9.9")  # the tools' Python has no vLLM
    assert "No module named 'vllm'" in str(caught.value)
    assert "--no-option-check" in str(caught.value)


def test_the_part_that_runs_in_the_engine_needs_nothing_of_ours() -> None:
    source = Path(in_engine.__file__).read_text()
    assert "import rig" not in source and "from rig" not in source
    command = [sys.executable, "-I", "-c", f"exec({source.partition('if __name__')[0]!r})"]
    subprocess.run(command, check=True)
