"""Questions to a trace: more nodes, a tenant that grows, a cap of premium."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tunery.cli.simulate.spot import SpotScenario
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.plan.scheduling.policy import Policy

NODES: Final = re.compile(r"nodes=([+-]?)(\d+)")
TENANT: Final = re.compile(r"tenant=(.+)\*(\d+)")
PREMIUM_CAP: Final = re.compile(r"premium-cap=(\d+)")
FORMS: Final = "nodes=+2, nodes=40, tenant=NAME*2, premium-cap=64"
FACTOR_MAX: Final = 100


class QuestionUnclear(Exception):
    """A what-if that is none. The message names the forms that there are."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Parameters of a simulation."""

    # jobs, policy: the jobs to run, and the scheduling policy
    jobs: Sequence[TraceJob]
    policy: Policy
    # nodes, slots: number of nodes, and slots of each node
    nodes: int
    slots: int
    spot: SpotScenario | None = None  # spot machines among the nodes; None: none


def ask(setting: Setting, question: str) -> Setting:
    """The setting in which it is as the question says. Raises QuestionUnclear."""
    if match := NODES.fullmatch(question):
        sign, count = match[1], int(match[2])
        nodes = {"+": setting.nodes + count, "-": setting.nodes - count}.get(sign, count)
        if nodes < 1:
            raise QuestionUnclear(f"{question}: that leaves {nodes} of {setting.nodes} nodes.")
        return replace(setting, nodes=nodes)
    if match := TENANT.fullmatch(question):
        tenant, factor = match[1], int(match[2])
        own = [job for job in setting.jobs if job.tenant == tenant]
        if not own:
            names = sorted({job.tenant for job in setting.jobs})
            some = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
            raise QuestionUnclear(f"{question}: the trace has no tenant {tenant!r}, but {some}.")
        if not 1 <= factor <= FACTOR_MAX:
            raise QuestionUnclear(f"{question}: from 1 to {FACTOR_MAX} times.")
        more = [
            replace(job, job_id=f"{job.job_id}+{number}")
            for number in range(1, factor)
            for job in own
        ]
        return replace(setting, jobs=[*setting.jobs, *more])
    if match := PREMIUM_CAP.fullmatch(question):
        if not setting.policy.lanes:
            raise QuestionUnclear(f"{question}: this policy has one queue for all lanes.")
        return replace(setting, policy=replace(setting.policy, premium_slots_max=int(match[1])))
    raise QuestionUnclear(f"{question!r} is no what-if. There are {FORMS}.")
