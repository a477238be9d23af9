"""What the steps of the demo share: the running stack, the API, and results of earlier steps."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tunery.cli.demo.claims import DemoResult
from tunery.cli.demo.display import Display
from tunery.cli.demo.receiver import Receiver
from tunery.client import AsyncApi
from tunery.exit_kit.stand_in import AccountStub
from tunery.local.stack import Stack

EXAMPLES: Final = Path(__file__).parents[3] / "examples"


@dataclass
class DemoContext:
    """Passed to every step."""

    stack: Stack
    api: AsyncApi
    display: Display
    result: DemoResult
    receiver: Receiver
    data: Path | None  # the user's own training file; None for the example
    in_pods: bool = False  # trainings run in pods of a cluster, not on two node agents
    # the account that `--from-openai` moves away from
    account: AccountStub = field(default_factory=AccountStub)
    file_id: str = ""  # the accepted training file
    # the API's answer to the estimate request
    estimate: dict[str, Any] = field(default_factory=dict)
    webhook_secret: str = ""  # signs what the receiver gets
    job_id: str = ""
    # training loss by step, as last reported
    losses: dict[int, float] = field(default_factory=dict)
    # killed_node, surviving_node: ids of the two agents
    killed_node: str = ""
    surviving_node: str = ""
    last_checkpoint_step: int = 0  # the newest checkpoint when the agent was killed
    job: dict[str, Any] = field(default_factory=dict)  # the job after its end
    model_id: str = ""  # the registered version
    second_job_id: str = ""  # the job whose version shares a stage with the first one

    @property
    def training_file(self) -> Path:
        return self.data or EXAMPLES / "lighthouse.jsonl"

    def check(self, claim: str, holds: bool, text: str) -> bool:
        """Record whether `claim` holds and show `text` with a mark."""
        self.display.claim(holds, text)
        return self.result.check(claim, holds)
