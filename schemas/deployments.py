"""Which versions answer in a stage: shares of its traffic, and what came of them.

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
    """A version's share of a stage's traffic.

    model_id: the version.
    buckets: of BUCKETS.
    """

    model_id: str
    buckets: int


class Deployment(Part, omit_defaults=True):
    """What shall answer in a stage.

    series, stage: the stage of a series.
    model_id: the version that holds the stage. It answers whom `second` does not.
    serving_pool: the engines that answer.
    second: answers callers whose bucket is below its number of buckets.
    shadow: is asked a share of the questions as well; its answers are only counted.
    salt: of the callers' buckets: they stay the same while the two versions do.
    phase: counts the changes of shares, by which traffic is counted apart.
    """

    series: str
    stage: ServedStage
    model_id: str
    serving_pool: str = LOCAL_POOL
    second: Arm | None = None
    shadow: Arm | None = None
    salt: str = ""
    phase: int = 0


class ArmTraffic(Part):
    """What one version has answered under a deployment.

    role: of the version.
    answers: that ended, or that their client left.
    failures: questions that the engine could not answer.
    prompt_tokens, completion_tokens: read and written.
    answer_ms: from the question to the end, of all answers.
    subjects: buckets of callers whom it answered.
    """

    model_id: str
    role: ArmRole
    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    answer_ms: int = 0
    subjects: int = 0


# --- commands
class Deploy(Message):
    """A stage shall be answered so; a version that does not hold it is promoted to it.

    deployment: what shall hold. `salt` counts where the two versions are new, `phase` never.
    expected: as in `Promote`, where the version does not hold the stage yet.
    """

    deployment: Deployment
    expected: str | None = None


class CountTraffic(Message):
    """What a gateway has seen answered in some seconds.

    series, stage, salt, phase: of the deployment; what is of a former one is dropped.
    arms: what is added to each version's counts; `subjects` is not read.
    buckets: of callers that were answered.
    """

    series: str
    stage: ServedStage
    salt: str
    phase: int
    arms: tuple[ArmTraffic, ...]
    buckets: tuple[int, ...] = ()


# --- events
class Deployed(Message):
    """A stage is answered so, as long as the deployment's first version holds it.

    deployment: what holds.
    """

    deployment: Deployment


class TrafficCounted(Message):
    """What was answered under a deployment since it, or its shares, began.

    arms: all of it.
    buckets: of callers that were answered for the first time.
    """

    series: str
    stage: ServedStage
    arms: tuple[ArmTraffic, ...]
    buckets: tuple[int, ...] = ()
