"""What a rig build says about itself: `vllm/rig_provenance.json`.

The patched engine reads this file too (patch 0901), so its form is a contract: change SCHEMA with
it. The seal finds accidents, not attackers: anyone can seal a file again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rig.errors import RigError
from rig.pins import Commit, Flavour, PatchNumber, ReleaseVersion, Sha256

if TYPE_CHECKING:  # a launch reads provenance, and needs nothing of the series
    from rig.series.applied import AppliedTree


PROVENANCE_PATH = "vllm/rig_provenance.json"
SCHEMA: Literal[1] = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ProvenancePatch(_Model):
    """One patch that a build carries; sha256 is of the patch file's bytes."""

    number: PatchNumber
    subject: str
    file: str
    sha256: Sha256


class Provenance(_Model):
    """What a build carries.

    Args:
        version: ours, `0.33.0+rig.1`.
        release: the vLLM release it stands on; commit is that release's.
        series: digest of the whole series; tree is the git tree id of the patched source.
        files: each file that differs from the release -> sha256 of its bytes.
        removed: files of the release that must be gone.
    """

    schema_: Literal[1] = Field(SCHEMA, alias="schema")
    version: str
    release: ReleaseVersion
    commit: Commit
    flavour: Flavour
    series: Sha256
    tree: str = Field(pattern=r"^[0-9a-f]{40}$")
    patches: tuple[ProvenancePatch, ...]
    files: dict[str, Sha256] = Field(min_length=1)
    removed: tuple[str, ...]


def provenance_of(
    applied: AppliedTree,
    flavour: Flavour,
    version: str,
    files: Mapping[str, bytes],
    removed: Sequence[str],
) -> Provenance:
    """The provenance of a build from an applied tree; files are the changed files' bytes."""
    return Provenance(
        version=version,
        release=applied.pin.version,
        commit=applied.pin.commit,
        flavour=flavour,
        series=applied.series_digest,
        tree=applied.final_tree,
        patches=tuple(
            ProvenancePatch(number=p.number, subject=p.subject, file=p.name, sha256=p.sha256)
            for p in applied.patches
        ),
        files={name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        removed=tuple(sorted(removed)),
    )


def _seal(content: Mapping[str, Any]) -> str:
    unsealed = {k: v for k, v in content.items() if k != "seal"}
    text = json.dumps(unsealed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def format_provenance(provenance: Provenance) -> bytes:
    """The sealed file's bytes."""
    content = provenance.model_dump(mode="json", by_alias=True)
    content["seal"] = _seal(content)
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode("ascii")


def parse_provenance(data: bytes, where: object) -> Provenance:
    """Read and check a provenance file.

    Raises:
        RigError: it is not ours, of another schema, or its seal is broken.
    """
    damaged = "install the wheel again: `pip install --force-reinstall --no-deps dist/<wheel>`"
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as error:  # JSON and UTF-8 errors are ValueErrors
        raise RigError(
            f"the provenance file cannot be read: {error}", where=where, next_step=damaged
        ) from error
    if content.get("schema") != SCHEMA:
        raise RigError(
            f"the provenance file has the form {content.get('schema')!r}, "
            f"these tools know form {SCHEMA}",
            where=where,
            next_step="use the tools of the checkout that built it",
        )
    seal = content.pop("seal", None)
    if seal != _seal(content):
        raise RigError(
            "the provenance file was changed after it was sealed", where=where, next_step=damaged
        )
    try:
        return Provenance.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise RigError(
            "the provenance file does not hold what it must hold",
            where=where,
            detail="\n".join(f"{e['loc']}: {e['msg']}" for e in error.errors()),
            next_step=damaged,
        ) from error
