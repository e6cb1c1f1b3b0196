"""The provenance of one wheel: an in-toto statement with a SLSA provenance predicate, unsigned.

It says by digests what the wheel was made of. It says nothing about the machine: another machine
that follows it gives the same bytes, which is how it is checked.
"""

from __future__ import annotations

import json

from rig.pins import Artifact
from rig.release.contents import Contents
from rig.release.point import Point
from rig.release.wanted import Wanted

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:vllm-rig:repack:1"
BUILDER = "urn:vllm-rig:make-release:1"


def statement_text(
    contents: Contents,
    wanted: Wanted,
    point: Point,
    texts: dict[str, str],
    others: dict[str, str],
) -> str:
    """The statement as JSON.

    Args:
        contents: the wheel, which is the first subject.
        wanted: the pin, flavour and processor that it was made for.
        texts: path in the checkout -> sha256 of what the build reads there: patches, lock, tools.
        others: further subjects, file name -> sha256: the wheel's SBOM.
    """
    provenance = contents.provenance
    subjects = {contents.name: contents.sha256, **others}
    statement = {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"release": point.version, "wheel": str(wanted)},
                "internalParameters": {
                    "vllm": provenance.release,
                    "upstreamCommit": provenance.commit,
                    "series": provenance.series,
                    "patchedTree": provenance.tree,
                },
                "resolvedDependencies": [
                    {
                        "name": "vllm-rig",
                        "digest": {"gitCommit": point.commit, "gitTree": point.tree},
                    },
                    _artifact(wanted.pin.sdist),
                    _artifact(wanted.artifact),
                    *(
                        {"name": path, "digest": {"sha256": digest}}
                        for path, digest in texts.items()
                    ),
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }
    return json.dumps(statement, indent=2) + "\n"


def _artifact(artifact: Artifact) -> dict[str, object]:
    return {"name": artifact.name, "digest": {"sha256": artifact.sha256}}
