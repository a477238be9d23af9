"""`/v1/fine_tuning/preview`: rows of a file as the tokens that a base model would train on."""

from typing import Final

from services.gateway.accounts.deps import limits_of
from services.gateway.files.beginnings import copy_beginning
from services.gateway.files.deps import WithFileDeps
from services.gateway.files.domain.bodies import check_purpose
from services.gateway.files.domain.preview_tasks import Preview
from services.gateway.files.routes import known_file
from services.gateway.jobs.domain.bodies import PreviewRequest
from services.gateway.jobs.domain.own_chats import continued_chat, requested_chat
from services.gateway.jobs.domain.responses import PreviewResponse
from services.gateway.jobs.own_counts import tokenizer_of
from services.gateway.jobs.submission import find_start
from services.gateway.models.domain.names import unknown_model
from services.gateway.models.routes import find_base
from services.gateway.web.deps import Caller
from services.gateway.web.domain.errors import invalid
from services.gateway.web.routing import new_router
from tunery.work.own_chat import OwnChat

BEGINNING_BYTES: Final = 32 * 1024 * 1024  # of a larger file only this much is read
router = new_router("fine-tuning")


@router.post("/v1/fine_tuning/preview")
async def preview_rows(body: PreviewRequest, deps: WithFileDeps, caller: Caller) -> PreviewResponse:
    """Show the first valid rows as tokens with their loss mask, and problems of rows before.

    An own version or checkpoint is trained on with its own tokenizer and chat template.
    """
    limits = await limits_of(deps, caller.tenant)
    with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
        start = await find_start(deps, caller.tenant, body.model)
        base = await find_base(deps, body.model) if start is None else start.base
        if base is None:
            raise unknown_model(body.model)
        chat = _chat(body)
        if start is not None:
            chat = continued_chat(chat, start.chat, deps.seal.open)
        file = await known_file(deps, caller, body.training_file)
        check_purpose(file.id, file.purpose, "training_file")
        path = folder / "rows"
        await copy_beginning(deps, file, path, BEGINNING_BYTES)
        task = Preview(
            path=str(path),
            base_path=base.path,
            tokenizer=None if chat is None else await tokenizer_of(base, chat, folder),
            rows=body.rows,
            max_length=body.max_length,
            length_policy=body.length_policy,
            reasoning=body.reasoning,
        )
        rows = await deps.previews.ask(task, caller.tenant, limits.niceness)
    return PreviewResponse(
        model=base.base_id,
        training_file=file.id,
        data=rows["data"],
        problems=rows["problems"],
    )


def _chat(body: PreviewRequest) -> OwnChat | None:
    """Raises ApiError 400."""
    chat, problems = requested_chat(body.chat_template, body.eot_tokens)
    for param, message in problems:
        name = param.rpartition(".")[2]
        raise invalid(f"{name}: {message}", name)
    return chat
