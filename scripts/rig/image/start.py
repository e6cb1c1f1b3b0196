"""What runs when a container of ours starts: look, say what is in the way, become the launcher.

IMAGE MODEL [vLLM's arguments ...]     serve; without a model, RIG_MODEL and RIG_ARGUMENTS
IMAGE doctor|plan|p2p|report|... ...   that command of `rig`
IMAGE health                           one token from the server of this container
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.errors import RigError, first_line_of_os_error
from rig.image.start_checks import problems
from rig.image.start_facts import CACHE_VARIABLES, FLAVOUR_VARIABLE, read_facts

COMMANDS = ("doctor", "plan", "p2p", "report", "inspect", "pins", "ray-head", "ray-join")
# Variables that a file may hold instead: what stands in the environment is seen by `inspect`.
SECRETS = ("HF_TOKEN", "VLLM_API_KEY")
USAGE, UNFIT = 2, 3

# Beginnings of options, as vLLM takes them too -> what to do instead.
_HIDDEN = {
    "--por": "publish another port of the host, `-p 127.0.0.1:9000:8000`; with the host's network "
    "set RIG_LISTEN_PORT",
    "--hos": "set RIG_HOST",
    "--api-k": "put the key into a file and name it in VLLM_API_KEY_FILE (RIG_API_KEY_FILE in "
    "docker/.env); as an argument everybody on the box can read it",
    "--ssl": "leave TLS to a proxy in front of the published port",
}


def with_secrets(environment: Mapping[str, str]) -> tuple[dict[str, str], list[RigError]]:
    """The environment with the secrets read from the files that `<NAME>_FILE` names, and what is
    wrong with those that cannot be read.

    An empty file is no secret: a compose file must name one even where none is wanted.
    """
    filled, found = dict(environment), []
    for name in SECRETS:
        path = environment.get(f"{name}_FILE")
        if not path:
            continue
        try:
            secret = Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            said = first_line_of_os_error(error) if isinstance(error, OSError) else "not text"
            found.append(_unreadable(name, path, said))
            continue
        if secret:
            filled[name] = secret
    return filled, found


def _unreadable(name: str, path: str, said: str) -> RigError:
    return RigError(
        f"the secret {name} cannot be read by user {os.getuid()}: {said}",
        where=path,
        next_step="give the file on the host to the user that the container runs as "
        f"(RIG_UID), mode 0400, or unset {name}_FILE",
    )


def port_of(environment: Mapping[str, str]) -> int:
    """The port that the server listens on inside.

    Raises:
        RigError: it is no port.
    """
    text = environment.get("RIG_LISTEN_PORT") or "8000"
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise RigError(f"RIG_LISTEN_PORT is {text!r}", next_step="give a port, like 8000")
    return int(text)


def serve_arguments(asked: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What `rig serve` is given: the words that were asked for, and what the image decides.

    Raises:
        RigError: no model is named, or a port is asked for that nobody outside would know of.
    """
    words = list(asked) or [
        *filter(None, [environment.get("RIG_MODEL")]),
        *_split(environment.get("RIG_ARGUMENTS") or ""),
    ]
    if {"-h", "--help"} & set(words):
        return words
    if not words or (not asked and not environment.get("RIG_MODEL")):
        raise RigError(
            "no model was named",
            next_step="name it after the image, or in RIG_MODEL (docker/.env)",
        )
    _refuse_hidden(words)
    if not _has(words, "--rig"):
        words = ["--rig", environment.get("RIG_NAME") or "auto", *words]
    if environment.get(FLAVOUR_VARIABLE) == "cpu" and "--rehearse" not in words:
        words = ["--rehearse", *words]
    words += ["--host", environment.get("RIG_HOST") or "127.0.0.1"]
    return [*words, "--port", str(port_of(environment))]


def _refuse_hidden(words: Sequence[str]) -> None:
    """Refuse what the health check, a process of its own, would not know of."""
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        for beginning, next_step in _HIDDEN.items():
            if name.startswith(beginning):
                raise RigError(
                    "in a container this is not an argument: the health check must know it",
                    where=name,
                    next_step=next_step,
                )


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise RigError(
            f"the arguments cannot be told apart: {error}",
            where="RIG_ARGUMENTS",  # not its text: a key may stand there
            next_step="close each quote: RIG_ARGUMENTS holds words as a shell reads them",
        ) from error


def _has(words: Sequence[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words)


def host_of(words: Sequence[str]) -> str:
    """The address that the server will listen on, out of `serve_arguments`."""
    found = "127.0.0.1"
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--host":
            found = value if equals else following
    return found


def main(argv: Sequence[str]) -> int:
    """Become what was asked for; the exit status is returned only if that is refused."""
    environment, found = with_secrets(os.environ)
    try:
        words = _command(list(argv), environment)
    except RigError as error:
        for problem in (*found, error):
            print(problem, file=sys.stderr)
        return USAGE
    serves = words[0] == "serve" and not {"--dry-run", "-h", "--help"} & set(words)
    if serves:
        found += problems(read_facts(environment, host_of(words), port_of(environment)))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return UNFIT
    if serves:
        unmade = _make_cache_folders(environment)
        if unmade:
            print(unmade, file=sys.stderr)
            return UNFIT
        _say_who_can_reach_it(host_of(words))
    sys.stderr.flush()
    command = [sys.executable, "-P", "-m", "rig", *words]
    os.execve(sys.executable, command, environment)


def _make_cache_folders(environment: Mapping[str, str]) -> RigError | None:
    for path in (Path(environment[v]) for v in CACHE_VARIABLES if environment.get(v)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return RigError(
                f"a cache folder cannot be made: {error.strerror or error}",
                where=path,
                next_step="make room on the cache volume, or remove the file that is in its place",
            )
    return None


def _command(argv: list[str], environment: Mapping[str, str]) -> list[str]:
    if argv[:1] == ["health"]:
        host = environment.get("RIG_HOST") or "127.0.0.1"
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        own = f"http://{host}:{port_of(environment)}"
        return ["health", *(argv[1:] or [own])]
    if argv[:1] and argv[0] in COMMANDS:
        return argv
    return ["serve", *serve_arguments(argv[argv[:1] == ["serve"] :], environment)]


def _say_who_can_reach_it(host: str) -> None:
    if host in ("127.0.0.1", "::1", "localhost"):
        print(
            "note: the server listens on the container's own loopback; to reach it from the host "
            "set RIG_HOST=0.0.0.0 and publish its port there: -p 127.0.0.1:8000:8000",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
