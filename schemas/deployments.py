"""Deployments: shares of a stage's traffic among versions, and counts of their answers.

Commands and events of `model`. A stage is held by one version. Its deployment names another one
that answers a share of the callers, and one that is asked a share of the questions unseen. It ends
when another version holds the stage.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part

BUCKETS = 10_000  # of callers: each is in one of them for good
LOCAL_POOL = "local"  # the engine of the gateway's machine
ServedStage: TypeAlias = Literal["staging", "production"]
ArmRole: TypeAlias = Literal["first", "second", "shadow"]


class Arm(Part):
    """A version's share of a stage's traffic."""

    model_id: str  # the version
    buckets: int  # number of its buckets, out of BUCKETS


class Deployment(Part, omit_defaults=True):
    """Versions that answer for a stage of a series, and how callers are split between them."""

    # series, stage: the stage of a series
    series: str
    stage: ServedStage
    # the version that holds the stage. It answers the callers that `second` does not.
    model_id: str
    serving_pool: str = LOCAL_POOL  # the engines that answer
    second: Arm | None = None  # answers callers whose bucket is below its number of buckets
    # gets copies of a share of the questions as well; its answers are only counted
    shadow: Arm | None = None
    salt: str = ""  # salt of the callers' buckets; constant while the two versions are
    phase: int = 0  # counts the changes of shares, by which traffic is counted apart


class ArmTraffic(Part):
    """Traffic of one version under a deployment."""

    model_id: str
    role: ArmRole  # role of the version
    answers: int = 0  # answers that ended, or whose client disconnected
    failures: int = 0  # questions that the engine could not answer
    # prompt_tokens, completion_tokens: tokens of prompts and of answers
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answer_ms: int = 0  # sum over answers of the time from the question to the end
    subjects: int = 0  # buckets of callers that it answered


# --- commands
class Deploy(Message):
    """Deploy versions for a stage; a version that does not hold the stage is promoted to it."""

    # the wanted deployment. `salt` counts where the two versions are new, `phase` never.
    deployment: Deployment
    expected: str | None = None  # see `Promote`, where the version does not hold the stage yet


class CountTraffic(Message):
    """Add the traffic that a gateway has observed in some seconds."""

    # series, stage, salt, phase: identify the deployment; counts of a former one are dropped
    series: str
    stage: ServedStage
    salt: str
    phase: int
    arms: tuple[ArmTraffic, ...]  # what is added to each version's counts; `subjects` is not read
    buckets: tuple[int, ...] = ()  # buckets of the answered callers


# --- events
class Deployed(Message):
    """A stage is answered so, as long as the deployment's first version holds it."""

    deployment: Deployment  # what holds


class TrafficCounted(Message):
    """Total traffic under a deployment since it, or its shares, last changed."""

    series: str
    stage: ServedStage
    arms: tuple[ArmTraffic, ...]  # totals of each version
    buckets: tuple[int, ...] = ()  # buckets of callers that were answered for the first time
