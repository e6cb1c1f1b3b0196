"""The table of options against the engine's own parser: they take and refuse the same lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.overhead import LIMIT_S, measure
from rig.options import in_engine
from rig.options.cache import ask_engine
from rig.options.check import check_arguments

from .conftest import Stage

LINES = [
    "",
    "--tensor-parallel-size 2 --dtype bfloat16 --max-model-len 8k --enforce-eager",
    "--tensor_parallel_size=2 -pp 2 --gpu-memory-utilization 0.9 --no-enable-prefix-caching",
    '--limit-mm-per-prompt {"video":0,"image":2} --mm-encoder-tp-mode data',
    "--limit-mm-per-prompt.video 0 --speculative-config.num_speculative_tokens 2",
    "-cc.cudagraph_mode NONE -O2 --offload-towers --cpu-offload-gb 1.5 --api-key a b",
    "--kv-cache-dtype fp8_e4m3 --max-model-len auto --block-size 16 --numa-bind-nodes 0 0 1 1",
    "--tensor-par 2 --served-model-name x y --seed 0 --trust-remote-code",
    "--enforce-egar",
    "--tensor-parallel-size",
    "--tensor-parallel-size two",
    "--dtype float17",
    "--max-num 5",
    "--max-model-len many",
    "--max-num-seqs 1.5.2",
    "--limit-mm-per-prompt video",
    "--mm-encoder-tp-mode replicated",
    "--enforce-eager=1",
    "--made-up.key 1",
    "another/model",
    "--compilation-config 3.x",
    "--gpu-memory-utilization high",
    "--numa-bind-nodes zero",
]

_ASK = """
import json, sys
sys.path.insert(0, {folder!r})
import in_engine
parser = in_engine.parser_of_serve()
answers = []
for line in json.load(sys.stdin):
    try:
        parser.parse_args(["some/model", *line.split()])
        answers.append(True)
    except (SystemExit, Exception):
        answers.append(False)
print(json.dumps(answers))
"""


@pytest.mark.engine
def test_the_table_takes_and_refuses_what_the_engine_does(stage: Stage) -> None:
    python = stage.environment.python
    table = ask_engine(python, "this one")
    assert table.option("--offload-towers") is not None
    assert len(table.options) > 200
    script = _ASK.format(folder=str(Path(in_engine.__file__).parent))
    done = subprocess.run(
        [python, "-c", script],
        input=json.dumps(LINES),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    by_engine = dict(zip(LINES, json.loads(done.stdout.splitlines()[-1]), strict=True))
    by_table = {}
    for line in LINES:
        try:
            check_arguments(table, "some/model", line.split())
            by_table[line] = True
        except RigError:
            by_table[line] = False
    assert by_table == by_engine
    assert len(set(by_engine.values())) == 2


@pytest.mark.engine
def test_the_launcher_costs_little_before_it_starts_anything(stage: Stage) -> None:
    line = ["--rig", "2x3090", str(stage.model), "--rehearse"]
    found = measure([*line, "--python", str(stage.environment.python)], rounds=1)
    assert found["cpu"] < LIMIT_S  # the clock's seconds are a busy machine's, not ours
