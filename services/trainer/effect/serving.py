"""The serve role: a replica of a serving pool, which answers until its lease ends."""

import datetime
from pathlib import Path
from typing import Final

from schemas.training import AttemptStart, EvalResult, ServeWork
from services.trainer.domain.state import Grant
from services.trainer.effect.program import Program, Tools
from services.trainer.effect.replica_answers import ReplicaAnswers
from services.trainer.effect.replica_files import ReplicaFiles
from services.trainer.effect.replica_relay import SOCKET, ReplicaRelay
from services.trainer.settings import TrainerSettings
from tunery.work.engine import EngineModel
from tunery.work.events import AnyWorkEvent, ReplicaReady
from tunery.work.exits import WorkError
from tunery.work.replica import ReplicaEndpoint, ReplicaSpec, encode_endpoint

MODELS: Final = "engine"  # next to the folders of leases: later replicas find models converted


class Serving(Program):
    """Program of a lease in role serve.

    answers: keeps and sends the tokens that are counted
    """

    def __init__(
        self,
        grant: Grant,
        work: ServeWork,
        tools: Tools,
        settings: TrainerSettings,
        answers: ReplicaAnswers,
    ) -> None:
        super().__init__(grant, tools, settings)
        self.module = settings.serve_module
        self._work, self._answers = work, answers
        self._files = ReplicaFiles(grant.tenant, self.fetch)
        self._relay_to = ReplicaRelay(settings.serve_host, settings.serve_as or settings.serve_host)
        self._endpoint: ReplicaEndpoint | None = None
        self._counted: Path | None = None

    async def write_inputs(self, folder: Path) -> ReplicaSpec:
        """Open the sockets of the process. Raises WorkError where this node starts no replicas."""
        if not self.module:
            message = "this node has no program for replicas"
            raise WorkError("bad_node", message, "Tell the operator: set TUNERY_NODE_SERVE_MODULE.")
        work, node = self._work, folder.parent.parent
        now_ms = self.tools.runtime.clock.now_ms()
        now = datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC)
        files_socket = await self._files.open(folder)
        self._endpoint = await self._relay_to.open(folder, now)
        self._counted = self._answers.take(self.grant.tenant)
        return ReplicaSpec(
            base=EngineModel(work.base_id, work.base_path, work.base_sha256, 0),
            socket=str(folder / SOCKET),
            files_socket=str(files_socket),
            models_dir=str(node / MODELS),
            answers_dir=str(self._counted),
            threads=max(1, self.settings.threads * self.grant.slots // self.settings.slots),
        )

    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """Report where it answers, once it does."""
        if not isinstance(event, ReplicaReady) or self._endpoint is None:
            return None
        text = encode_endpoint(self._endpoint)
        return AttemptStart(
            loaded=None,
            loaded_step=0,
            skipped=(),
            total_steps=0,
            endpoint=self.tools.runtime.seal.seal(self.grant.tenant, text, "endpoint"),
        )

    async def result(self) -> EvalResult:
        """Raises FileNotFoundError: a replica leaves nothing, and ends only on request."""
        raise FileNotFoundError("the replica ended by itself")

    async def close(self) -> None:
        """Relay nothing more; what the process counted is sent from now on without it."""
        await self._relay_to.close()
        await self._files.close()
        if self._counted is not None:
            self._answers.give_back(self._counted)
        await super().close()
