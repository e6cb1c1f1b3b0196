"""The SBOM of one wheel, in CycloneDX 1.6 and checked against that schema.

It lists what the wheel is, which release it was made of by which patches, which libraries it
holds, and what it asks pip for. What is compiled into the libraries it cannot know, and says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from rig.errors import RigError
from rig.pins import Artifact
from rig.release.contents import Contents, Wanting
from rig.release.series_read import PatchText
from rig.wheel.provenance import Provenance

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, Pedigree
    from packageurl import PackageURL

_LIBRARY = "cyclonedx-python-lib"
_NOTES = (
    "Repacked from the release's wheel with the files that the patches change; nothing was "
    "compiled. What its shared libraries are made of is not listed: the release does not say it."
)


def sbom_text(
    contents: Contents, base: Artifact, patches: Mapping[str, PatchText], seconds: int
) -> str:
    """The SBOM as JSON, the same bytes for the same wheel.

    Args:
        base: the release's own wheel.
        patches: by number, as they serve the wheel's pin.
        seconds: the date of the release since 1970.

    Raises:
        RigError: the text does not keep the schema.
    """
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.model.dependency import Dependency
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    wheel = _wheel(contents, base, patches)
    wanted = [_wanted(w) for w in contents.wants]
    tool = Component(
        name=_LIBRARY,
        type=ComponentType.LIBRARY,
        version=installed_version(_LIBRARY),
        bom_ref=f"tool:{_LIBRARY}",
    )
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{contents.name} {contents.sha256}"),
        metadata=BomMetaData(
            component=wheel,
            timestamp=datetime.fromtimestamp(seconds, UTC),
            tools=ToolRepository(components=[tool]),
        ),
        components=wanted,
        dependencies=[
            Dependency(
                wheel.bom_ref,
                (Dependency(c.bom_ref) for c in wanted if c.scope is not ComponentScope.OPTIONAL),
            ),
            *(Dependency(c.bom_ref) for c in wanted),
        ],
    )
    made = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    text = made.output_as_string(indent=2) + "\n"
    _require_valid(text, contents.name)
    return text


def _wheel(contents: Contents, base: Artifact, patches: Mapping[str, PatchText]) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression

    provenance = contents.provenance
    licences = [LicenseExpression(contents.licence)] if contents.licence else []
    return Component(
        name="vllm",
        version=provenance.version,
        type=ComponentType.APPLICATION,
        bom_ref=f"wheel:{contents.name}",
        purl=_purl("vllm", provenance.version, contents.name),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=contents.sha256)],
        licenses=licences,
        pedigree=_pedigree(provenance, base, patches),
        properties=_properties(
            {
                "vllm-rig:flavour": [provenance.flavour],
                "vllm-rig:series": [provenance.series],
                "vllm-rig:tree": [provenance.tree],
                "vllm-rig:upstream-commit": [provenance.commit],
            }
        ),
        components=[
            Component(
                name=path,
                type=ComponentType.FILE,
                bom_ref=f"file:{path}",
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            )
            for path, digest in contents.libraries.items()
        ],
    )


def _pedigree(provenance: Provenance, base: Artifact, patches: Mapping[str, PatchText]) -> Pedigree:
    from cyclonedx.model import HashAlgorithm, HashType, XsUri
    from cyclonedx.model.component import (
        Component,
        ComponentType,
        Diff,
        Patch,
        PatchClassification,
        Pedigree,
    )

    backport, own = PatchClassification.BACKPORT, PatchClassification.UNOFFICIAL
    project = base.name.split("-", 1)[0].replace("_", "-")
    release = Component(
        name=project,
        version=provenance.release,
        type=ComponentType.APPLICATION,
        bom_ref=f"release:{base.name}",
        purl=_purl(project, provenance.release, base.name),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=base.sha256)],
    )
    lines = [
        f"{p.number} {p.subject} (sha256 {p.sha256}; upstream: {patches[p.number].status})"
        for p in provenance.patches
    ]
    return Pedigree(
        ancestors=[release],
        patches=[
            Patch(
                type=backport if patches[p.number].status.startswith("Backport ") else own,
                diff=Diff(url=XsUri(patches[p.number].path)),
            )
            for p in provenance.patches
        ],
        notes="\n".join([_NOTES, *lines]),
    )


def _wanted(wanting: Wanting) -> Component:
    from cyclonedx.model.component import Component, ComponentScope, ComponentType

    optional, required = ComponentScope.OPTIONAL, ComponentScope.REQUIRED
    return Component(
        name=wanting.name,
        version=wanting.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"requires:{wanting.name}",
        purl=_purl(wanting.name, wanting.version, None),
        scope=optional if wanting.optional else required,
        properties=_properties({"vllm-rig:requires-dist": wanting.requirements}),
    )


def _purl(name: str, version: str | None, file_name: str | None) -> PackageURL:
    from packageurl import PackageURL

    qualifiers = {"file_name": file_name} if file_name else None
    return PackageURL("pypi", None, name, version, qualifiers)


def _properties(values: dict[str, Iterable[str]]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=name, value=value) for name, all in values.items() for value in all]


def _require_valid(text: str, wheel: str) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise RigError(
            "the SBOM does not keep the CycloneDX schema",
            where=wheel,
            detail=str(problem)[:2000],
            next_step=f"see whether {_LIBRARY} has changed in requirements/tools.txt",
        )
