"""The steps of `serve` before anything is started, in their order, each with its exit status.

rig -> installation -> options -> box -> doctor's gate -> memory plan -> P2P verdict -> decide.
What is slow to import is imported where it is needed: `serve` must cost little beside vLLM.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rig.errors import RigError
from rig.launch.arguments import value_of
from rig.launch.command_line import CommandLine, UsageError, options_of, rig_name_of
from rig.launch.decide import Kind, Known, Reason
from rig.launch.decide.layout import NotEnoughCardsError
from rig.launch.engine_environment import describe, require_model, require_ray
from rig.launch.plan import ServeOptions, ServePlan, plan_serve
from rig.launch.refused import Refused
from rig.launch.supervise import FAILED, TOO_LARGE, UNFIT, USAGE, exit_code

if TYPE_CHECKING:
    from rig.box.facts import Box
    from rig.box.rig_file import Rig
    from rig.memory.result import MemoryPlan
    from rig.p2p.verdict import Verdict

Tell = Callable[[str], None]


class Steps:
    """One launch on its way to a plan.

    Attributes:
        line: the command line.
        tell: told what each step found.
        installation: what the check of the installation said; None before that step.
        health_every_s, health_failures: as `Supervisor` takes them.
    """

    def __init__(
        self, line: CommandLine, *, tell: Tell, check_installation: Callable[[Path], object]
    ) -> None:
        self.line = line
        self.tell = tell
        self.installation: object = None
        self.health_every_s = line.seconds("--health-every")
        self.health_failures = line.count("--health-failures") or 3
        self._check_installation = check_installation
        self._box: Box | None = None
        self._said: tuple[str, ...] = tuple(line.rest[1:])
        self._reasons: list[Reason] = []

    @property
    def api_key(self) -> str | None:
        """What the server will want of its clients, as far as the command line says it."""
        key = value_of(self._said, "--api-key")
        return key or os.environ.get("VLLM_API_KEY")

    def prepare(self) -> ServePlan:
        """Take every step; the plan to serve.

        Raises:
            Refused: a step says no.
        """
        from rig.box.rigs import disagreements

        try:
            rig, options = self._asked()
            first = plan_serve(options, known=Known(rig=rig))  # what makes no sense is said here
            require_model(options.model)
        except RigError as error:
            raise Refused(error, USAGE) from error
        try:
            environment = describe(options.python)
            # A shim on PATH has no programs beside it: plan with the interpreter it leads to.
            options = replace(options, python=environment.python)
            if first.ray_command:
                require_ray(environment)
            self.installation = self._check_installation(environment.python)
        except RigError as error:
            raise Refused(error, exit_code(error)) from error
        rig, options = self._check_options(rig, options)
        if not options.rehearse:
            for sentence in disagreements(rig, self._look()):
                self.tell(f"note: {sentence}")
            first = self._decide(options, Known(rig=rig, box=self._look()))
        warned = self._gate(rig, options, first)
        box = None if options.rehearse else self._look()
        memory = self._plan_memory(rig, box, first.cards, options)
        plan = self._decide(options, self._known(rig, box, memory, options))
        pinned = memory.host_pinned if memory is not None else None
        others = set(plan.cards or ()) - set(first.cards or ())
        if (pinned or others) and not options.rehearse:
            self._gate(rig, options, plan, pinned, said=("", *warned))
        plan = self._with_reasons(plan)
        self._say(plan)
        return plan

    def _decide(self, options: ServeOptions, known: Known) -> ServePlan:
        try:
            return plan_serve(options, known=known)
        except NotEnoughCardsError as error:
            raise Refused(error, UNFIT) from error
        except RigError as error:
            raise Refused(error, USAGE) from error

    def dry_run(self) -> ServePlan:
        """The plan as far as it can be made with what is at hand: nothing has to be there.

        Raises:
            Refused: the command line makes no sense, or vLLM would not take it.
        """
        try:
            rig, options = self._asked()
            plan_serve(options, known=Known(rig=rig))
        except RigError as error:
            raise Refused(error, USAGE) from error
        from rig.launch.options_step import installed

        self.installation = installed(options.python)
        with suppress(RigError):  # the interpreter that a shim leads to, as `prepare` does
            options = replace(options, python=describe(options.python).python)
        rig, options = self._check_options(rig, options, ask=False)
        box = None if options.rehearse else self._look()
        cards = None
        with suppress(RigError):
            cards = plan_serve(options, known=Known(rig=rig, box=box)).cards
        memory = self._plan_memory(rig, box, cards, options, offline=True, only_say=True)
        known = self._known(rig, box, memory, options)
        try:
            return self._with_reasons(plan_serve(options, known=known))
        except NotEnoughCardsError as error:
            self._assume("cards", f"the box will have them; now {error.what}")
            return self._with_reasons(self._decide(options, replace(known, box=None)))
        except RigError as error:
            raise Refused(error, USAGE) from error

    def _asked(self) -> tuple[Rig, ServeOptions]:
        """The rig and the options; a model comes first, as that is what people forget."""
        from rig.box.rigs import AUTO, find_rig

        if not self.line.rest or self.line.rest[0].startswith("-"):
            options_of(self.line, None, ranks=1)  # says what is missing
        name = rig_name_of(self.line)
        if name == AUTO and self.line.has("--rehearse"):
            raise UsageError(
                "--rig auto looks at cards, and a rehearsal has none",
                next_step="name a rig of scripts/rigs, like --rig 4x3090",
            )
        try:
            rig = find_rig(name, box=self._look() if name == AUTO else None)
        except RigError as error:
            raise Refused(error, UNFIT if name == AUTO else USAGE) from error
        options = options_of(self.line, None, ranks=rig.cards.count)
        return rig, replace(options, port=rig.defaults.port)

    def _look(self) -> Box:
        """The box, looked at once."""
        from rig.box.read import read_box

        if self._box is None:
            self._box = read_box()
        return self._box

    def _check_options(
        self, rig: Rig, options: ServeOptions, *, ask: bool = True
    ) -> tuple[Rig, ServeOptions]:
        """Refuse what vLLM does not know, and spell out the rest; `ask`: it may be started."""
        from rig.launch.options_step import check_options, spelled_out

        if not self.line.has("--no-option-check"):
            arguments = (*rig.defaults.arguments, *options.extra_arguments)
            try:
                skipped = check_options(
                    options.python, options.model, arguments, self.installation, self.tell, ask=ask
                )
            except RigError as error:
                raise Refused(error, USAGE) from error
            if skipped:
                self._assume("arguments", skipped)
        rig, options = spelled_out(rig, options, self.installation)
        self._said = (*rig.defaults.arguments, *options.extra_arguments)
        return rig, options

    def _gate(
        self,
        rig: Rig,
        options: ServeOptions,
        plan: ServePlan,
        pinned: int | None = None,
        said: Sequence[str] = (),
    ) -> list[str]:
        """Heed the doctor: the checks that warned; those in `said` are not told again."""
        from rig.launch.gate_step import heed_doctor, wait_until_drained

        if not options.rehearse and not said and self._look().cards:
            wait_until_drained(self._look_again, self.tell)
        return heed_doctor(self._look(), rig, options, plan, pinned, said, self.tell)

    def _look_again(self) -> Box:
        self._box = None
        return self._look()

    def _plan_memory(
        self,
        rig: Rig,
        box: Box | None,
        cards: tuple[int, ...] | None,
        options: ServeOptions,
        *,
        offline: bool = False,
        only_say: bool = False,
    ) -> MemoryPlan | None:
        """The memory plan, or None with a reason said; a model that does not fit is refused."""
        if self.line.has("--no-plan"):
            self._assume("memory", "the model fits: --no-plan")
            return None
        from rig.launch.planning import NoPlanError, only, plan_of_memory, read, summary, why_not

        try:
            model = read(options, offline=offline or options.rehearse, only_say=only_say)
        except NoPlanError as error:
            self._assume("memory", f"the model fits: no plan could be made ({error.what})")
            return None
        except RigError as error:
            retried = (
                not options.rehearse and not Path(options.model).exists()
            )  # a network may come
            raise Refused(error, FAILED if retried else USAGE) from error
        try:
            memory = plan_of_memory(model, rig, only(box, cards), options)
        except RigError as error:
            raise Refused(error, USAGE) from error
        for sentence in () if only_say else summary(memory, rehearse=options.rehearse):
            self.tell(sentence)
        if memory.fits:
            return memory
        refused = why_not(memory)
        # A rehearsal runs on the host's memory, not on the cards that the plan is of.
        if only_say or options.rehearse:
            self._assume("memory", refused.what, "advice")
            return memory
        raise Refused(refused, TOO_LARGE)

    def _known(
        self, rig: Rig, box: Box | None, memory: MemoryPlan | None, options: ServeOptions
    ) -> Known:
        return Known(
            rig=rig,
            box=box,
            verdict=self._verdict(box, options),
            memory=memory,
            release=getattr(getattr(self.installation, "provenance", None), "release", None),
            numactl=shutil.which("numactl") is not None,
        )

    def _verdict(self, box: Box | None, options: ServeOptions) -> Verdict | None:
        """What `rig p2p` keeps for exactly this box and engine; None, with the reason said."""
        if box is None or not box.cards or len(box.cards) < 2:
            return None
        from rig.p2p.store import look_up

        found = look_up(box, options.python)
        if found.verdict is None:
            self._assume("P2P", f"no card may read another's memory: {found.why_not}")
        return found.verdict

    def _assume(self, subject: str, why: str, kind: Kind = "assumed") -> None:
        self._reasons.append(Reason(kind, subject, why))

    def _with_reasons(self, plan: ServePlan) -> ServePlan:
        return replace(plan, reasons=(*self._reasons, *plan.reasons))

    def _say(self, plan: ServePlan) -> None:
        for reason in plan.reasons:
            if reason.kind in ("conflict", "layout", "advice"):
                self.tell(f"note: {reason.why}")
            elif reason.kind == "assumed":
                self.tell(f"assumed: {reason.why}")
