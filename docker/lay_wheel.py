"""Puts our wheel into an image so that a new series changes one small layer.

Runs while an image is built, with the engine's own Python; standard library only.

    lay_wheel.py split WHEELS CHANGED    in a stage that is thrown away: pip installs the wheel,
                                         and what it changed is copied into two folders:
        CHANGED/release/...              what is the release's (compiled code, unpatched files):
                                         empty where the base image holds the same bytes
        CHANGED/series/...               what the patches made, and the list of what is gone, beside
                                         what is there already (the pins)
        CHANGED/{release,series}.sha256  what the image's builder keys its cache by
    lay_wheel.py finish                  in the image, after both were copied into it: removes
                                         what is gone, compiles, and looks whether Ray is whole

What an installation owns is what its RECORD lists, byte code aside.
"""

from __future__ import annotations

import compileall
import glob
import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

DISTRIBUTION = "vllm"
PROVENANCE = "vllm/rig_provenance.json"
NOTES = Path("/opt/vllm-rig/laid.json")


def fail(what: str, next_step: str) -> None:
    sys.exit(f"error: {what}\n  next:  {next_step}")


def installed() -> importlib.metadata.Distribution | None:
    """The installed vLLM; None if there is none. What an uninstallation left behind is none."""
    found = importlib.metadata.distributions(name=DISTRIBUTION)
    return next((d for d in found if d.read_text("METADATA")), None)


def files_of(distribution: importlib.metadata.Distribution | None) -> dict[Path, str]:
    """Absolute path -> digest of each file of an installation that is really there."""
    found: dict[Path, str] = {}
    if distribution is None:
        return found
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file))).resolve()
        if path.suffix != ".pyc" and path.is_file():
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def check_fit(wheel: Path, base: importlib.metadata.Distribution | None) -> None:
    """Refuse a wheel for another processor, or for another release than the base image's."""
    machine = platform.machine()
    if not wheel.stem.endswith((machine, "-any")):
        fail(
            f"{wheel.name} is not for this image's processor, {machine}",
            "build with --arch, and a base image of the same",
        )
    release = wheel.name.split("-")[1].partition("+")[0]
    if base and base.version.partition("+")[0] != release:
        fail(
            f"the base image holds vLLM {base.version}, the wheel stands on {release}",
            "name the base image of the pinned release",
        )


def sort_changes(
    before: dict[Path, str], after: dict[Path, str], patched: set[str], packages: Path
) -> tuple[list[Path], list[Path], list[Path]]:
    """What the wheel changed: (the release's files, the series' files, what is gone).

    Args:
        patched: paths below `packages` that the series changed.
        packages: the folder that the package lies in.
    """
    release: list[Path] = []
    series: list[Path] = []
    for path in sorted(p for p, digest in after.items() if before.get(p) != digest):
        name = path.relative_to(packages).as_posix() if path.is_relative_to(packages) else ""
        ours = not name.startswith(f"{DISTRIBUTION}/") or name in patched
        (series if ours else release).append(path)
    return release, series, sorted(before.keys() - after.keys())


def split(wheels: Path, changed: Path) -> None:
    """Install the wheel and copy what changed."""
    wheel = next(wheels.glob("*.whl"))
    base = installed()
    check_fit(wheel, base)
    before = files_of(base)
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*command, "--force-reinstall", "--no-cache-dir", str(wheel)], check=True)
    ours = installed()
    assert ours is not None
    after = files_of(ours)
    packages = Path(str(ours.locate_file(""))).resolve()
    patched = {*json.loads((packages / PROVENANCE).read_text())["files"], PROVENANCE}
    release, series, gone = sort_changes(before, after, patched, packages)
    for part, paths in (("release", release), ("series", series)):
        (changed / part).mkdir(parents=True, exist_ok=True)
        for path in paths:
            target = changed / part / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    notes = changed / "series" / NOTES.relative_to("/")
    notes.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(p) for p in series if p.suffix == ".py"]
    left = {"packages": str(packages), "gone": [str(p) for p in gone], "compile": sources}
    notes.write_text(json.dumps(left, indent=1))
    for part in ("release", "series"):
        (changed / f"{part}.sha256").write_text(digest_of(changed / part) + "\n")
    size = {n: sum(p.stat().st_size for p in ps) for n, ps in (("r", release), ("s", series))}
    print(f"the release's: {len(release)} files, {size['r']} bytes")
    print(f"the series': {len(series)} files, {size['s']} bytes; gone: {len(gone)}")


def digest_of(folder: Path) -> str:
    """One digest of the names and bytes of all files in a folder."""
    found = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        found.update(f"{path.relative_to(folder)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def finish() -> None:
    """Remove what is gone, compile what is new, and see that Ray has what it needs."""
    notes = json.loads(NOTES.read_text())
    remove([Path(name) for name in notes["gone"]], Path(notes["packages"]))
    for name in notes["compile"]:
        compileall.compile_file(name, quiet=1)
    missing = missing_of("ray")
    if missing:
        fail(f"Ray lacks {', '.join(missing)}", "add it to docker/ray.txt, with its digests")


def remove(gone: list[Path], packages: Path) -> None:
    """Remove files, their byte code, and below `packages` each folder that is empty then.

    To Python an empty `.dist-info` is a second installation, of no version, and may be the one
    that it finds; any other empty folder can be imported.
    """
    for path in gone:
        path.unlink(missing_ok=True)
        if path.suffix == ".py":
            for code in (path.parent / "__pycache__").glob(f"{glob.escape(path.stem)}.*.pyc"):
                code.unlink()
    for path in gone:
        for folder in (path.parent / "__pycache__", *path.parents):
            if packages in folder.parents and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def missing_of(name: str) -> list[str]:
    """What a distribution asks for, outside its extras, and is not installed."""
    missing = []
    for line in importlib.metadata.requires(name) or ():
        if "extra" not in line.partition(";")[2]:
            wanted = line.partition(";")[0]
            end = next((i for i, c in enumerate(wanted) if not (c.isalnum() or c in "._-")), None)
            try:
                importlib.metadata.version(wanted[:end].strip())
            except importlib.metadata.PackageNotFoundError:
                missing.append(wanted.strip())
    return missing


if __name__ == "__main__":
    if sys.argv[1:2] == ["split"]:
        split(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:] == ["finish"]:
        finish()
    else:
        sys.exit(__doc__)
