"""What the chapters share: the running stack, the API, and what earlier chapters found out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tunery.cli.demo.claims import Told
from tunery.cli.demo.display import View
from tunery.cli.demo.receiver import Receiver
from tunery.client import AsyncApi
from tunery.local.stack import Stack

EXAMPLES: Final = Path(__file__).parents[3] / "examples"


@dataclass
class Scene:
    stack: Stack
    api: AsyncApi
    view: View
    told: Told
    receiver: Receiver
    data: Path | None
    file_id: str = ""
    estimate: dict[str, Any] = field(default_factory=dict)
    secret: str = ""
    job_id: str = ""
    losses: dict[int, float] = field(default_factory=dict)
    killed: str = ""
    survivor: str = ""
    last_checkpoint: int = 0
    job: dict[str, Any] = field(default_factory=dict)
    model_id: str = ""

    @property
    def training_file(self) -> Path:
        return self.data or EXAMPLES / "lighthouse.jsonl"

    def check(self, claim: str, holds: bool, text: str) -> bool:
        """Record a claim and show it."""
        self.view.claim(holds, text)
        return self.told.check(claim, holds)
