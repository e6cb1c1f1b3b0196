"""Who and where this is: the names that a report must not hold."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A variable whose name ends so holds a secret. Not "..._TOKEN_PATH": that is only where one lies.
SECRET_NAME = re.compile(
    r"(?:TOKEN|API_?KEY|SECRET|SECRET_?(?:ACCESS_?)?KEY|PASSWORD|PASSWD|CREDENTIALS?)$",
    re.IGNORECASE,
)
_SHORTEST_SECRET = 6


@dataclass(frozen=True)
class Identity:
    """Args: users, homes, hosts: names; secrets: values that may stand nowhere."""

    users: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def identity_of_this_process(environment: Mapping[str, str] | None = None) -> Identity:
    """This user and this machine. What is not known is left out."""
    told = os.environ if environment is None else environment
    users = [told.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    homes = [told.get("HOME", "")]
    try:
        entry = pwd.getpwuid(os.getuid())
        users += [entry.pw_name, *_full_name(entry.pw_gecos)]
        homes.append(entry.pw_dir)
    except KeyError:
        pass  # a container whose user has no entry
    host = socket.gethostname()
    secrets = [
        value
        for name, value in told.items()
        if SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
    ]
    return Identity(
        users=_distinct(users),
        homes=_distinct(home.rstrip("/") for home in homes),
        hosts=_distinct([host, host.partition(".")[0]]),
        secrets=_distinct(secrets),
    )


def _full_name(gecos: str) -> list[str]:
    name = gecos.partition(",")[0].strip()
    return [name] if " " in name else []


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Without repeats and empty ones, longest first: a part must not spoil the whole."""
    return tuple(sorted({name for name in names if name}, key=lambda name: (-len(name), name)))
