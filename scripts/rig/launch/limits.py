"""How many files a process may hold open: Ray and vLLM need more than many systems' default."""

from __future__ import annotations

import resource

from rig.errors import RigError

LEAST_OPEN_FILES = 4096
_ENOUGH = 65536


def open_files_to_allow() -> tuple[int, int]:
    """The (soft, hard) limit of open files for what a launch starts.

    The soft limit stays as it is if it is high enough; else it is raised as far as is of use.

    Raises:
        RigError: the hard limit, which only root can raise, is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= LEAST_OPEN_FILES:
        return soft, hard
    wanted = _ENOUGH if hard == unlimited else min(hard, _ENOUGH)
    if wanted < LEAST_OPEN_FILES:
        raise RigError(
            f"a process may open {wanted} files here and {LEAST_OPEN_FILES} are needed",
            where="the hard limit, `ulimit -Hn`",
            next_step="raise it: nofile in /etc/security/limits.conf, or LimitNOFILE= in a unit",
        )
    return wanted, hard


def raise_open_files() -> None:
    """Allow this process and its children as many open files as the engine needs.

    Raises:
        RigError: the hard limit is too low.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files_to_allow())
