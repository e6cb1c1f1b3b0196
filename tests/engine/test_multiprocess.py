"""The other executor: vLLM's own processes in place of Ray's."""

from __future__ import annotations

import pytest

from rig.rehearsal.client import ask
from rig.rehearsal.compare import compare
from rig.rehearsal.exchange import ANSWER_TOKENS
from rig.rehearsal.rehearse import check_build, provenance_of_wheel, served_without_trace
from rig.rehearsal.stage import SERVED_NAME, serve_options

from .conftest import Stage

pytestmark = [pytest.mark.engine, pytest.mark.full]


def test_two_ranks_in_processes_of_vllms_answer_as_the_oracle(stage: Stage) -> None:
    logs = stage.folder / "logs mp"
    options = serve_options(stage.environment, stage.model, logs, ranks=2, executor="mp")
    with served_without_trace(stage.environment, options) as server:
        assert check_build(server.base_url, provenance_of_wheel(stage.wheel))
        answer = ask(server.base_url, SERVED_NAME, stage.questions["astronaut"])
    found = compare(answer, stage.oracle["astronaut"])
    assert found.tokens == ANSWER_TOKENS
    assert found.equal, found.difference
