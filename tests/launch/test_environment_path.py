"""Ray and the path of the environment that it runs from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import RigError
from rig.launch.engine_environment import EngineEnvironment, require_ray


@pytest.mark.parametrize("name", ["a b", "it's", "a$b", "a;b", "(copy)"])
def test_a_path_that_is_no_shell_word_is_refused_before_ray_starts(
    tmp_path: Path, name: str
) -> None:
    programs = tmp_path / name / "bin"
    programs.mkdir(parents=True)
    (programs / "ray").touch()
    environment = EngineEnvironment(programs / "python", "0.32.0", "2.60.0", True, None)
    with pytest.raises(RigError, match="Ray cannot run from an environment whose path"):
        require_ray(environment)


def test_a_plain_path_is_accepted(tmp_path: Path) -> None:
    programs = tmp_path / "env-1.0_a" / "bin"
    programs.mkdir(parents=True)
    (programs / "ray").touch()
    require_ray(EngineEnvironment(programs / "python", "0.32.0", "2.60.0", True, None))
