"""Facts of a box from pasted text: what its owner's terminal or bug report shows.

Reads, in any mixture and order: nvidia-smi (the table, -q, -L, --query-gpu as CSV), topo -m,
topo -p2p, lspci (-v to -vvv, -t, -tv), p2pBandwidthLatencyTest, dmesg, df, free, uname,
/proc/cmdline, ulimit -a,
club-3090's report lines, and what `rig report` writes. For remote help only: on the box itself
`rig.box.read` asks the interfaces instead.
"""

from __future__ import annotations

from rig.box.facts import Box
from rig.box.pasted.bandwidth import read_bandwidth_test
from rig.box.pasted.build import box_of_draft
from rig.box.pasted.clean import clean_lines
from rig.box.pasted.draft import Draft
from rig.box.pasted.host import read_host
from rig.box.pasted.lspci import read_lspci
from rig.box.pasted.lspci_tree import read_lspci_tree
from rig.box.pasted.report import box_of_our_report, read_report_lines
from rig.box.pasted.smi_csv import read_smi_csv
from rig.box.pasted.smi_query import read_smi_query
from rig.box.pasted.smi_table import read_smi_table
from rig.box.pasted.topo import read_topo

__all__ = ["box_of_text"]

# In this order: the tree needs the addresses that the others name.
_READERS = (
    ("nvidia-smi", read_smi_table),
    ("nvidia-smi -q", read_smi_query),
    ("nvidia-smi --query-gpu or -L", read_smi_csv),
    ("nvidia-smi topo", read_topo),
    ("p2pBandwidthLatencyTest", read_bandwidth_test),
    ("report lines", read_report_lines),
    ("lspci", read_lspci),
    ("lspci -t", read_lspci_tree),
    ("host", read_host),
)


def box_of_text(text: str, source: str) -> Box:
    """A box as far as a text shows it. Never raises: what is not recognised is not known.

    Args:
        text: what was pasted, of one or of several commands.
        source: what to call it, e.g. the name of its file; it becomes the box's `source`.

    Returns:
        The box; its notes say what was recognised, what was cut and what did not fit.
    """
    ours = box_of_our_report(text)
    if ours is not None:
        return ours.model_copy(update={"source": source})
    lines = clean_lines(text)
    draft = Draft()
    recognised = [name for name, reader in _READERS if reader(lines, draft)]
    if recognised:
        draft.note("recognised in the text: " + ", ".join(recognised))
    else:
        draft.note("nothing in the text was recognised: paste the output of nvidia-smi, lspci, ...")
    return box_of_draft(draft, source)
