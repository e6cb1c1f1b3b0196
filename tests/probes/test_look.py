"""What probes see in a tree: names through re-exports and bases, signatures, texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.git import Git
from rig.probes.grammar import parse_probes
from rig.probes.look import Sighting, State, look
from rig.probes.sources import Commit, Folder
from tests.series.workshop import run_git

FILES = {
    "vllm/__init__.py": "from vllm.engine.core import Engine\n",
    "vllm/engine/__init__.py": "from .core import Engine as Public, start\n",
    "vllm/engine/core.py": """\
from vllm.base import Base
from vllm.lists import Mixed


class Engine(Base, Mixed[int]):
    limit: int = 3

    def __init__(self, config, *, eager=False, **rest) -> None:
        self.config = config

    @property
    def device(self):
        return None

    class Inner:
        def deep(self, a, /, b): ...


def start(engine: Engine, now: bool = True) -> None:
    pass
""",
    "vllm/base.py": "class Base:\n    def close(self): ...\n",
    "vllm/lists.py": "class Mixed:\n    @classmethod\n    def make(cls): ...\n",
}


def _tree(folder: Path, files: dict[str, str]) -> Folder:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return Folder("a tree", folder)


def _see(tmp_path: Path, probe: str, changed: dict[str, str] | None = None) -> Sighting:
    """One probe in the tree, or in a changed one compared with it."""
    made_for = _tree(tmp_path / "old", FILES)
    tree = made_for
    if changed is not None:
        tree = _tree(tmp_path / "new", FILES | changed)
    (seen,) = look({"0101-x.patch": parse_probes([probe])}, tree, made_for)
    return seen


@pytest.mark.parametrize(
    ("probe", "where"),
    [
        ("symbol vllm.engine.core:Engine", "vllm/engine/core.py:5"),
        ("symbol vllm.engine.core:Engine.__init__", "vllm/engine/core.py:8"),
        ("symbol vllm.engine.core:Engine.device", "vllm/engine/core.py:12"),
        ("symbol vllm.engine.core:Engine.limit", "vllm/engine/core.py:6"),
        ("symbol vllm.engine.core:Engine.Inner.deep", "vllm/engine/core.py:16"),
        ("symbol vllm.engine:Public.device", "vllm/engine/core.py:12"),
        ("symbol vllm.engine:start", "vllm/engine/core.py:19"),
        ("symbol vllm:Engine.close", "vllm/base.py:2"),
        ("symbol vllm.engine.core:Engine.make", "vllm/lists.py:2"),
        ('once vllm/base.py "def close"', "vllm/base.py:2"),
    ],
)
def test_what_is_there(tmp_path: Path, probe: str, where: str) -> None:
    seen = _see(tmp_path, probe)
    assert (seen.state, seen.said, seen.where) == (State.HOLDS, "", where)


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ("symbol vllm.engine.core:Engine.open", "vllm.engine.core has no Engine.open"),
        ("symbol vllm.gone:Engine", "there is no module vllm.gone; Engine is defined in"),
        ("symbol vllm.base:start", "vllm.base has no start; start is defined in vllm/engine/core"),
        ('once vllm/base.py "def open"', "the text is not there"),
        ('once vllm/base.py "def make"', "it is in vllm/lists.py"),
        ('once vllm/engine/core.py "def "', "the text is there 4 times"),
        ('once vllm/gone.py "def close"', "there is no such file; the text is in vllm/base.py"),
    ],
)
def test_what_is_gone(tmp_path: Path, probe: str, said: str) -> None:
    seen = _see(tmp_path, probe)
    assert seen.state is State.GONE
    assert said in seen.said


CORE = FILES["vllm/engine/core.py"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("config, *, eager", "config, more, *, eager", "(self, config, more, keyword eager=False"),
        ("eager=False", "eager=True", "was (self, config, keyword eager=False, **rest)"),
        ("def __init__(self", "async def __init__(self", ""),
        ("self, config, *", "self, config: dict, *", ""),
    ],
)
def test_a_signature(tmp_path: Path, old: str, new: str, said: str) -> None:
    changed = {"vllm/engine/core.py": CORE.replace(old, new, 1)}
    seen = _see(tmp_path, "symbol vllm.engine.core:Engine.__init__", changed)
    assert seen.state is (State.CHANGED if said else State.HOLDS)
    assert said in seen.said


def test_a_name_that_moved_but_is_still_exported(tmp_path: Path) -> None:
    changed = {
        "vllm/engine/core.py": "from vllm.engine.start import start\n",
        "vllm/engine/start.py": "def start(engine, now=True): ...\n",
    }
    seen = _see(tmp_path, "symbol vllm.engine.core:start", changed)
    assert seen.state is State.CHANGED
    assert seen.said == "defined in vllm/engine/start.py, was in vllm/engine/core.py"


def test_a_property_that_became_a_method(tmp_path: Path) -> None:
    changed = {"vllm/engine/core.py": CORE.replace("    @property\n", "")}
    seen = _see(tmp_path, "symbol vllm.engine.core:Engine.device", changed)
    assert (seen.state, seen.said) == (State.CHANGED, "a function, was a attribute")


@pytest.mark.parametrize("content", ["def broken(:\n", "x = '\udcff'\n"])
def test_a_file_that_is_no_python(tmp_path: Path, content: str) -> None:
    tree = _tree(tmp_path, FILES)
    (tmp_path / "vllm/base.py").write_bytes(content.encode("utf-8", "surrogateescape"))
    (seen,) = look({"p": parse_probes(["symbol vllm.base:Base"])}, tree)
    assert seen.state is State.GONE


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    files = {"vllm/__init__.py": "", "vllm/a.py": "from vllm.b import X\n"}
    tree = _tree(tmp_path, files | {"vllm/b.py": "from vllm.a import X\n"})
    (seen,) = look({"p": parse_probes(["symbol vllm.a:X"])}, tree)
    assert seen.state is State.GONE


def test_a_commit_is_read_like_a_folder(tmp_path: Path) -> None:
    folder = _tree(tmp_path, FILES)
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "add", "-A")
    run_git(tmp_path, "commit", "--quiet", "-m", "all")
    commit = Commit("a commit", Git(tmp_path), "HEAD")
    assert commit.read("vllm/base.py") == folder.read("vllm/base.py")
    assert commit.read("vllm/none.py") is folder.read("vllm/none.py") is None
    assert commit.holding("def close") == folder.holding("def close") == ["vllm/base.py"]
