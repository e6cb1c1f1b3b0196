"""A plan as a shell script: every variable and argument on its line, with its reason."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rig.launch.plan import ServePlan

_VARIABLES = ("$RIG_RAY_CLIENT_PORT", "$RIG_RAY_ADDRESS", "$RIG_RUN", "$RIG_PORT", "$PATH")
_REASON_COLUMN = 56


def quote(text: str) -> str:
    """One word for bash: the plan's markers stay variables, all else is taken literally."""
    if not any(variable in text for variable in _VARIABLES):
        return shlex.quote(text)
    for special in '\\`"':
        text = text.replace(special, "\\" + special)
    return f'"{text}"'


def _line(text: str, why: str) -> str:
    return f"{text:<{_REASON_COLUMN}}  # {why}" if why else text


def as_shell_script(plan: ServePlan) -> str:
    """The script that runs the plan's commands as `serving` does, for bash.

    It does not wait for health, prove anything, or clean up: that is what `serve` is for.
    """
    why = {(reason.kind, reason.subject): reason.why for reason in plan.reasons}
    lines = [f"# {plan.model} on {plan.devices} device(s)"]
    lines += [f"# note: {sentence}" for sentence in plan.conflicts]
    lines += ["", "# A private folder: Ray's token and files, the engine's sockets"]
    lines += ['RIG_RUN="$(mktemp -d /tmp/vllm-rig-XXXXXX)"']
    if plan.port is None:
        lines.append('RIG_PORT="$(shuf -i 20000-31999 -n 1)"')
    if plan.ray_command:
        token = "od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'"
        lines.append(f'(umask 077; {token} >"$RIG_RUN/token")')
        lines.append('RIG_RAY_CLIENT_PORT="$(shuf -i 20000-31999 -n 1)"')
    lines += ["", "# The environment, added to yours"]
    for name in plan.removed_variables:
        lines.append(_line(f"unset {name}", why.get(("removed", name), "")))
    for name, value in plan.engine_environment.items():
        if name != "RAY_ADDRESS":
            lines.append(_line(f"export {name}={quote(value)}", why.get(("environment", name), "")))
    if plan.ray_command:
        lines += ["", "# The private Ray cluster", "ray_command=("]
        lines.append(f"  {quote(plan.ray_command[0])} {plan.ray_command[1]}")
        for argument in plan.ray_command[2:]:
            lines.append(_line(f"  {quote(argument)}", why.get(("ray", argument), "")))
        lines += [")", '"${ray_command[@]}" &']
        lines.append('until [ -s "$RIG_RUN/r/ray_current_cluster" ]; do sleep 1; done')
        lines.append('export RAY_ADDRESS="$(cat "$RIG_RUN/r/ray_current_cluster")"')
    lines += ["", "# The server", "engine_command=("]
    program, *_ = plan.engine_command
    lines.append(f"  {quote(program)} serve {quote(plan.model)}")
    extra = plan.options.extra_arguments
    ours = plan.vllm_arguments[1 : len(plan.vllm_arguments) - len(extra)]
    for group in _by_option(ours):
        words = " ".join(quote(word) for word in group)
        lines.append(_line(f"  {words}", why.get(("argument", group[0]), "")))
    if extra:
        lines.append(_line("  " + " ".join(map(shlex.quote, extra)), "yours"))
    lines += [")", '"${engine_command[@]}"']
    return "\n".join(lines) + "\n"


def _by_option(arguments: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("-"):
            groups.append([argument])
        else:
            groups[-1].append(argument)
    return groups
