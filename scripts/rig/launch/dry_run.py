"""A plan as a shell script: every variable and argument on its line, with its reason."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rig.launch.arguments import has_option
from rig.launch.decide import Kind
from rig.launch.plan import MARKER, ServePlan

_REASON_COLUMN = 56
_CLIENT_PORT = "--ray-client-server-port"
# Options whose values are nobody else's business, and the variable that stands for each.
SECRETS = {"--api-key": "API_KEY", "--hf-token": "HF_TOKEN"}
_HAS_GRPC = "import importlib.util, sys; sys.exit(importlib.util.find_spec('grpc') is None)"
_STOP = """\
# When this ends, however it ends, the engine, then Ray, then the folder go.
stop() {
  if [ -n "$engine_pid" ]; then kill "$engine_pid"; wait "$engine_pid"; fi 2>/dev/null
  if [ -n "$ray_pid" ]; then kill "$ray_pid"; wait "$ray_pid"; fi 2>/dev/null
  rm -rf -- "$RIG_RUN"
}
engine_pid= ray_pid=
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM"""
_WAIT_FOR_RAY = """\
until [ -s "$RIG_RUN/r/ray_current_cluster" ]; do
  kill -0 "$ray_pid" 2>/dev/null || { echo "error: Ray ended; it says why above" >&2; exit 1; }
  sleep 0.2
done
export RAY_ADDRESS="$(cat "$RIG_RUN/r/ray_current_cluster")\""""


def quote(text: str) -> str:
    """One word for bash in which the plan's markers are variables; all else is literal."""
    words: list[str] = []
    end = 0
    for marker in MARKER.finditer(text):
        if marker.start() > end:
            words.append(shlex.quote(text[end : marker.start()]))
        words.append(f'"{marker[0]}"')
        end = marker.end()
    if end < len(text) or not words:
        words.append(shlex.quote(text[end:]))
    return "".join(words)


def comment(text: str) -> str:
    """A comment of one line, whatever the text holds: a second line would be run."""
    shown = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return f"# {shown}"


def shown(arguments: Sequence[str], *, marked: bool = True) -> list[str]:
    """Arguments as words for bash, secrets as variables that whoever runs the script must set.

    Args:
        marked: the plan's markers in them are variables; in the user's own words they are text.
    """
    as_word = quote if marked else shlex.quote
    words: list[str] = []
    variable = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = next((name for name in SECRETS if has_option([argument], name)), "")
            variable = SECRETS.get(option, "")
            name, equals, _ = argument.partition("=")
            if variable and equals:
                words.append(f"{shlex.quote(name)}={_asked_for(variable)}")
                continue
            words.append(as_word(argument))
        else:
            words.append(_asked_for(variable) if variable else as_word(argument))
            variable = f"{variable}_" if variable else ""  # a list: another name for each
    return words


def _asked_for(variable: str) -> str:
    return f'"${{{variable}:?is a secret and not printed here: set it}}"'


def _line(text: str, why: str) -> str:
    return f"{text:<{_REASON_COLUMN}}  {comment(why)}" if why else text


def as_shell_script(plan: ServePlan) -> str:
    """The script that runs the plan's commands as `serving` does, for bash.

    It ends what it started. It does not wait for health, proves nothing, and does not look for
    what vLLM leaves in /dev/shm: that is what `serve` is for.
    """
    why = {(reason.kind, reason.subject): reason.why for reason in plan.reasons}
    lines = ["#!/usr/bin/env bash", comment(f"{plan.model} on {plan.devices} device(s)")]
    lines += [comment(f"note: {sentence}") for sentence in plan.conflicts]
    for reason in plan.reasons:
        if reason.kind in ("assumed", "layout", "advice"):
            said = "assumed" if reason.kind == "assumed" else reason.subject
            lines.append(comment(f"{said}: {reason.why}"))
    lines.append("# note: vLLM may leave files in /dev/shm; `serve` removes them, this does not")
    lines += ["", "# A private folder: Ray's token and files, the engine's sockets"]
    lines += ['RIG_RUN="$(mktemp -d /tmp/vllm-rig-XXXXXX)" || exit', _STOP]
    if plan.port is None:
        lines.append('RIG_PORT="$(shuf -i 20000-31999 -n 1)"')
    if plan.ray_command:
        token = "od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'"
        lines.append(f'(umask 077; {token} >"$RIG_RUN/token")')
        lines.append('RIG_RAY_CLIENT_PORT="$(shuf -i 20000-31999 -n 1)"')
    lines += ["", "# The environment, added to yours"]
    for name in plan.removed_variables:
        lines.append(_line(f"unset {shlex.quote(name)}", why.get(("removed", name), "")))
    for name, value in plan.engine_environment.items():
        if name != "RAY_ADDRESS":
            lines.append(_line(f"export {name}={quote(value)}", why.get(("environment", name), "")))
    for reason in plan.reasons:
        if reason.kind == "left":
            lines.append(comment(f"{reason.subject} is not set by us: {reason.why}"))
    for path, text in plan.files.items():
        lines.append(comment("what the engine reads"))
        lines.append(f"mkdir -p -- {shlex.quote(str(Path(path).parent))}")
        lines.append(f"(umask 077; printf %s {shlex.quote(text)} >{shlex.quote(path)})")
    lines += _ray_lines(plan, why) if plan.ray_command else []
    lines += ["", "# The server", "engine_command=("]
    program, *_ = plan.engine_command
    lines.append(f"  {shlex.quote(program)} serve {shlex.quote(plan.model)}")
    extra = plan.options.extra_arguments
    ours = plan.vllm_arguments[1 : len(plan.vllm_arguments) - len(extra)]
    for group in _by_option(ours):
        words = " ".join(shown(group))
        lines.append(_line(f"  {words}", why.get(("argument", group[0]), "")))
    if extra:
        lines.append(_line("  " + " ".join(shown(extra, marked=False)), "yours"))
    lines += [")", '"${engine_command[@]}" &', "engine_pid=$!", 'wait "$engine_pid"']
    return "\n".join(lines) + "\n"


def _ray_lines(plan: ServePlan, why: Mapping[tuple[Kind, str], str]) -> list[str]:
    program, start, *arguments = plan.ray_command
    lines = ["", "# The private Ray cluster", "ray_command=(", f"  {shlex.quote(program)} {start}"]
    for argument in arguments:
        if not argument.startswith(_CLIENT_PORT):
            lines.append(_line(f"  {quote(argument)}", why.get(("ray", argument), "")))
    lines.append(")")
    for argument in arguments:
        if argument.startswith(_CLIENT_PORT):
            lines.append(comment(why.get(("ray", argument), "")))
            lines.append(f"if {shlex.quote(str(plan.python))} -c {shlex.quote(_HAS_GRPC)}; then")
            lines += [f"  ray_command+=({quote(argument)})", "fi"]
    return [*lines, '"${ray_command[@]}" &', "ray_pid=$!", *_WAIT_FOR_RAY.splitlines()]


def _by_option(arguments: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("-"):
            groups.append([argument])
        else:
            groups[-1].append(argument)
    return groups
