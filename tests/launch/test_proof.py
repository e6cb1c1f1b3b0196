"""The proof: which rank is on which card, and what the engine said or did not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rig.box.facts import CardProcess
from rig.launch.plan import ServeOptions
from rig.launch.proof import cards_by_process, logical_devices, proof
from rig.launch.serve import plan_serve, serving

from .checks import nothing
from .rules.row import box

RAY_LINE = "INFO 11-29 16:00:00 [x.py:1] Ray ranks on node {} use GPUs [{}] (ascending).\n"


def test_ranks_are_found_by_the_drivers_own_list_of_processes() -> None:
    held: dict[int, dict[str, Any]] = {
        2: {"processes": (CardProcess(pid=70), CardProcess(pid=9))},
        0: {"processes": None},
    }
    assert cards_by_process(box(4, cards=held), {0: 70, 1: 71}) == {0: "card 2 (0000:03:00.0)"}
    assert cards_by_process(box(4), {0: 70}) == {}


def test_ranks_are_on_the_devices_that_ray_names_for_their_node() -> None:
    log = RAY_LINE.format("aa", "0, 2") + RAY_LINE.format("bb", "1")
    assert logical_devices(log, {0: "aa", 1: "aa", 2: "bb", 3: "cc"}) == {
        0: "logical device 0 of Ray's",
        1: "logical device 2 of Ray's",
        2: "logical device 1 of Ray's",
    }
    assert logical_devices("", {0: "aa"}) == {}


@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_what_the_engine_did_not_say_is_not_made_up(options: ServeOptions, executor: str) -> None:
    options = replace(options, executor="ray" if executor == "ray" else "mp", ranks=1)
    with serving(plan_serve(options), check_installation=nothing) as server:
        if executor == "mp":  # the fake's process has no title of vLLM's
            server.plan = replace(server.plan, devices=0)
        rows = proof(server)
    said = {row.partition(" ")[0]: row for row in rows}
    assert "not said" in said["all-reduce"]
    assert "KV cache not said" in rows
    if executor == "ray":
        assert "card: not said" in rows[3]


def test_what_the_engine_said_is_shown(
    options: ServeOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(options, ranks=1)
    with serving(plan_serve(options), check_installation=nothing) as server:
        (rank,) = server.ranks()
        with server.engine_log.open("a") as log:
            log.write(RAY_LINE.format(rank.node_id, "3"))
            log.write("INFO 11-29 16:00:00 [kv.py:1] GPU KV cache size: 12,345 tokens\n")
        rows = proof(server)
    assert any(row.startswith("rank 0") and "logical device 3" in row for row in rows)
    assert any(row.startswith("KV cache") and "12,345 tokens" in row for row in rows)
