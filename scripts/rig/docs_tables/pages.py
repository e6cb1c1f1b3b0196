"""Which pages are made, and whether they are what is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from rig.docs_tables.failures import failure_table
from rig.docs_tables.patches import patch_table
from rig.docs_tables.pins import pin_table
from rig.layout import Layout
from rig.series.lock import replace_file

PAGES: Mapping[str, Callable[[Layout], str]] = MappingProxyType(
    {"patch-table.md": patch_table, "pins.md": pin_table, "log-failures.md": failure_table}
)


def docs_folder(layout: Layout) -> Path:
    return layout.root / "docs"


def stale_pages(layout: Layout) -> list[str]:
    """The pages that are missing or differ from what the series and the pins give now."""
    return [
        f"docs/{name}"
        for name, make in PAGES.items()
        if _read(docs_folder(layout) / name) != make(layout)
    ]


def write_pages(layout: Layout) -> list[str]:
    """Write the pages; the names of those that changed."""
    return [
        f"docs/{name}"
        for name, make in PAGES.items()
        if replace_file(docs_folder(layout) / name, make(layout).encode())
    ]


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
