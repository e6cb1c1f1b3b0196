"""The table of rules, in parts."""

from .all_reduce import ALL_REDUCE
from .cards import CARDS
from .engine import ENGINE
from .peer import P2P

ROWS = [*P2P, *ALL_REDUCE, *CARDS, *ENGINE]
