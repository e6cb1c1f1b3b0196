"""The step of `serve` that heeds the doctor's gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.doctor.finding import Finding
from rig.doctor.gate import gate
from rig.doctor.gather import gather
from rig.errors import RigError
from rig.launch.arguments import value_of
from rig.launch.plan import ServeOptions, ServePlan
from rig.launch.refused import Refused
from rig.launch.supervise import UNFIT
from rig.launch.supervise_drain import wait_for_drained
from rig.layout import layout_of_this_checkout


def heed_doctor(
    box: Box,
    rig: Rig,
    options: ServeOptions,
    plan: ServePlan,
    pinned: int | None,
    said: Sequence[str],
    tell: Callable[[str], None],
) -> list[str]:
    """Tell what warns and return the checks' names; those in `said` were told before.

    Raises:
        Refused: a check fails.
    """
    try:
        findings = findings_of(box, rig, options, plan, pinned)
    except RigError as error:
        raise Refused(error, UNFIT) from error
    failed = [finding for finding in findings if finding.state == "fail"]
    if failed:
        raise Refused(refusal(failed), UNFIT)
    for finding in findings:
        if finding.check not in said:
            step = f"; {finding.next_step}" if finding.next_step else ""
            tell(f"warning: {finding.check}: {finding.seen}{step}")
    return [finding.check for finding in findings]


def findings_of(
    box: Box, rig: Rig, options: ServeOptions, plan: ServePlan, pinned: int | None
) -> list[Finding]:
    """What fails or warns for this plan, failures first.

    Args:
        box: as it is now.
        plan: how many ranks there will be, and, where that was decided, on which cards.
        pinned: bytes of host memory that will be page-locked; None when nothing was planned.

    Raises:
        RigError: CUDA_VISIBLE_DEVICES names cards that the box does not have.
    """
    context = gather(
        layout_of_this_checkout(),
        box,
        rig,
        python=str(options.python),
        cards_wanted=0 if options.rehearse else plan.devices,
        pinned_bytes=pinned,
        ports=(),  # serving reserves its port itself
    )
    update: dict[str, object] = {"ray": bool(plan.ray_command)}
    if plan.engine_environment.get("VLLM_WSL2_ENABLE_PIN_MEMORY") == "1":
        update["wsl_pin_memory"] = True
    if plan.cards is not None:
        update["cards"] = plan.cards
    said = (*rig.defaults.arguments, *options.extra_arguments)
    share = value_of(said, "--gpu-memory-utilization")
    if share is not None and share.replace(".", "", 1).isdecimal():
        update["gpu_memory_utilization"] = float(share)
    return gate(box, rig, context.model_copy(update=update))


def wait_until_drained(read: Callable[[], Box], tell: Callable[[str], None]) -> None:
    """Wait for cards whose memory no process holds any more; what remains is warned of."""
    for warning in wait_for_drained(read, tell):
        tell(f"warning: {warning}")


def refusal(failed: Sequence[Finding]) -> RigError:
    """One error for all checks that failed."""
    names = ", ".join(finding.check for finding in failed)
    lines = [f"{f.check}: {f.seen}\n  why:  {f.why}\n  next: {f.next_step}" for f in failed]
    return RigError(
        f"the box is not fit for it: {names}",
        detail="\n".join(lines),
        next_step="`./rig doctor` looks at everything",
    )
