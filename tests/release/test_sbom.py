"""The SBOM: what a wheel is, what it was made of, what it holds and asks for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rig.errors import RigError
from rig.pins import Arch, Flavour
from rig.release.contents import Contents, read_contents
from rig.release.sbom import sbom_text
from rig.release.series_read import PatchText
from tests.wheel.wheel_fabric import CHANGES, LIBRARY, Fabric, metadata_text

PATCHES = {"0101": PatchText("0101", "patches/1.2.3/0101-platform-x.patch", "[Platform] x",
                             "Backport 1a2b3c4d", "ab" * 32, "1")}  # fmt: skip


def contents_of(tmp_path: Path, metadata: str | None = None) -> tuple[Fabric, Contents]:
    fabric = Fabric(tmp_path / "f", metadata=metadata)
    wheel = fabric.build(fabric.series(CHANGES))
    return fabric, read_contents(wheel.path, wheel.sha256, Arch.X86_64)


def sbom_of(fabric: Fabric, contents: Contents) -> Any:
    return json.loads(sbom_text(contents, fabric.cached_wheel(), PATCHES, 86_400))


def test_the_wheel_and_where_it_comes_from(tmp_path: Path) -> None:
    fabric, contents = contents_of(tmp_path)
    said = sbom_of(fabric, contents)
    wheel = said["metadata"]["component"]
    assert (wheel["name"], wheel["version"]) == ("vllm", "1.2.3+rig.1")
    assert wheel["purl"].startswith("pkg:pypi/vllm@1.2.3%2Brig.1")
    assert wheel["hashes"] == [{"alg": "SHA-256", "content": contents.sha256}]
    (ancestor,) = wheel["pedigree"]["ancestors"]
    assert ancestor["version"] == "1.2.3"
    assert ancestor["hashes"][0]["content"] == fabric.cached_wheel().sha256
    assert wheel["pedigree"]["patches"] == [
        {"diff": {"url": "patches/1.2.3/0101-platform-x.patch"}, "type": "backport"}
    ]
    assert "[Platform] x" in wheel["pedigree"]["notes"]
    (library,) = wheel["components"]
    assert library["name"] == "vllm/_C.abi3.so"
    assert library["hashes"][0]["content"] == hashlib.sha256(LIBRARY).hexdigest()
    assert said["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def test_the_same_wheel_gives_the_same_bytes_and_another_one_another_serial(tmp_path: Path) -> None:
    fabric, contents = contents_of(tmp_path)
    texts = {sbom_text(contents, fabric.cached_wheel(), PATCHES, 5) for _ in range(3)}
    assert len(texts) == 1
    other = Contents(**{**vars(contents), "sha256": "0" * 64})
    assert sbom_of(fabric, other)["serialNumber"] != sbom_of(fabric, contents)["serialNumber"]


def test_what_it_asks_for_on_its_platform(tmp_path: Path) -> None:
    lines = [
        "Requires-Dist: exact==1.5",
        "Requires-Dist: range<3,>=2",
        "Requires-Dist: wild==2.*",
        "Requires-Dist: Some_Name",
        'Requires-Dist: mac==1; platform_system == "Darwin"',
        'Requires-Dist: arm==1; platform_machine == "aarch64"',
        'Requires-Dist: old==1; python_version < "3.10"',
        'Requires-Dist: new==1; python_version >= "3.14"',
        'Requires-Dist: both==1; platform_machine == "x86_64"',
        'Requires-Dist: both==2; platform_machine == "aarch64"',
        'Requires-Dist: two==1; python_version >= "3.13"',
        'Requires-Dist: two==2; python_version < "3.13"',
        'Requires-Dist: more; extra == "audio"',
        'Requires-Dist: exact; extra == "audio"',
        'Requires-Dist: never; extra == "nowhere"',
    ]
    text = metadata_text(Flavour.CUDA).replace("Requires-Dist: regex", "\n".join(lines))
    _, contents = contents_of(tmp_path, text)
    wants = {w.name: (w.version, w.optional) for w in contents.wants}
    for name in ("torch", "torchaudio", "torchvision", "av"):
        wants.pop(name)
    assert wants == {
        "exact": ("1.5", False),
        "range": (None, False),
        "wild": (None, False),
        "some-name": (None, False),
        "new": ("1", False),
        "both": ("1", False),
        "two": (None, False),
        "more": (None, True),
    }
    exact = next(w for w in contents.wants if w.name == "exact")
    assert exact.requirements == ("exact==1.5", 'exact; extra == "audio"')


def test_only_what_is_needed_is_a_dependency(tmp_path: Path) -> None:
    fabric, contents = contents_of(tmp_path)
    said = sbom_of(fabric, contents)
    scopes = {c["name"]: c["scope"] for c in said["components"]}
    assert scopes["av"] == "optional" and scopes["regex"] == "required"
    top = next(d for d in said["dependencies"] if d["ref"].startswith("wheel:"))
    assert "requires:regex" in top["dependsOn"]
    assert "requires:av" not in top["dependsOn"]
    regex = next(c for c in said["components"] if c["name"] == "regex")
    assert "version" not in regex  # a range is no version


def test_a_text_that_breaks_the_schema_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric, contents = contents_of(tmp_path)
    broken = {**vars(contents), "sha256": "not a digest"}
    with pytest.raises(RigError, match="does not keep the CycloneDX schema"):
        sbom_text(Contents(**broken), fabric.cached_wheel(), PATCHES, 0)


def test_a_damaged_wheel_is_not_described(tmp_path: Path) -> None:
    fabric = Fabric(tmp_path / "f")
    wheel = fabric.build(fabric.series(CHANGES))
    data = bytearray(wheel.path.read_bytes())
    at = data.index(LIBRARY[1000:1020]) if LIBRARY[1000:1020] in data else len(data) // 3
    data[at] ^= 1
    wheel.path.write_bytes(data)
    with pytest.raises(RigError):
        read_contents(wheel.path, wheel.sha256, Arch.X86_64)


@pytest.mark.parametrize(
    ("path", "found"),
    [("vllm/x.so", True), ("vllm/libx.so.1.2", True), ("vllm/so.py", False), ("x.soap", False)],
)
def test_libraries_are_known_by_their_names(tmp_path: Path, path: str, found: bool) -> None:
    fabric = Fabric(tmp_path / "f", wheel_edits={path: b"\x7fELF"})
    wheel = fabric.build(fabric.series(CHANGES))
    contents = read_contents(wheel.path, wheel.sha256, Arch.X86_64)
    assert (path in contents.libraries) == found
