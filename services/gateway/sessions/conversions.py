"""Bodies of the Tinker SDK as commands of a session, and answers in the SDK's form. Pure.

What a tenant sends is checked here: by the time a command is on the log, its process can do it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

import numpy as np

from schemas.units import Tokens
from services.gateway.sessions.bodies import SampleRequest, StepRequest
from services.gateway.sessions.messages import (
    CUT,
    FLOAT32,
    INT32,
    INT64,
    STOPPED,
    DecodeError,
    PassOutput,
    PassRequest,
    SampleOutput,
)
from services.gateway.web.domain.errors import BODY_TOO_LARGE, UNSUPPORTED, ApiError, invalid
from services.gateway.web.edge import BODY_BYTES_MAX
from tunery.work.session import (
    LossName,
    LossRow,
    PassAnswer,
    PassBody,
    SampleAnswer,
    SampleBody,
    StepBody,
)

ROWS_MAX: Final = 1_024  # of one request; `client/config` says so
LOSSES: Final[tuple[str, ...]] = get_args(LossName)
CLIPPED: Final = ("clip_low_threshold", "clip_high_threshold")
# What each loss may be given, with the value that it has otherwise; None: it must be given.
SETTINGS: Final[Mapping[str, Mapping[str, float | None]]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": dict(zip(CLIPPED, (0.8, 1.2), strict=True)),
    "cispo": dict(zip(CLIPPED, (0.0, 4.0), strict=True)),
    "dro": {"beta": None},
}
NUMPY: Final[Mapping[int, Any]] = {
    FLOAT32: np.dtype("<f4"),
    INT64: np.dtype("<i8"),
    INT32: np.dtype("<i4"),
}
LOGPROBS: Final = "logprobs"


class ModelLimits(NamedTuple):
    """Limits of a session's model."""

    vocabulary: int  # number of tokens; 0: not known
    max_length: int  # tokens of a row


class Pass(NamedTuple):
    """A request for a pass."""

    session_id: str
    seq: int
    forward_only: bool
    request: Any  # the message


def decompressed(content: bytes, encoding: str) -> bytes:
    """Return a body without its compression. Raises ApiError 415, 413, 400."""
    if encoding == "identity":
        return content
    if encoding != "zstd":
        text = f"bodies are taken plain or as zstd, not as {encoding!r}"
        raise ApiError(415, UNSUPPORTED, text, "content-encoding")
    import pyarrow  # a tenth of a second, and 50 MB: only where a client compresses

    stream = pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd")
    try:
        plain: bytes = stream.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        raise invalid(f"The body is not zstd: {error}.", None, "invalid_zstd") from error
    if len(plain) > BODY_BYTES_MAX:
        text = f"The request body has more than {BODY_BYTES_MAX} bytes once it is decompressed."
        raise ApiError(413, BODY_TOO_LARGE, text)
    return plain


def read_pass(content: bytes) -> Pass:
    """Return a request as it is on the wire. Raises ApiError 400."""
    request = PassRequest()
    try:
        request.ParseFromString(content)
    except (DecodeError, UnicodeDecodeError) as error:
        message = f"The body is no ForwardBackwardRequest in protobuf: {error}."
        raise invalid(message, None, "invalid_protobuf") from error
    return Pass(request.model_id, request.seq_id, request.forward_only, request)


def pass_body(asked: Pass, limits: ModelLimits) -> tuple[PassBody, int]:
    """Return the command of a pass, and its tokens. Raises ApiError 400."""
    request = asked.request
    if request.loss_fn not in LOSSES:
        text = f"the loss {request.loss_fn!r} is not computed here; use {', '.join(LOSSES)}, or "
        text += "forward_backward_custom, which computes it at the client"
        raise invalid(text, "loss_fn", UNSUPPORTED)
    if not 1 <= len(request.data) <= ROWS_MAX:
        raise invalid(f"must have 1 to {ROWS_MAX} entries, not {len(request.data)}", "data")
    settings = _settings(request)
    rows = tuple(
        _row(request.loss_fn, datum, f"data.{number}", limits)
        for number, datum in enumerate(request.data)
    )
    tokens = sum(len(row.tokens) // 4 for row in rows)
    return PassBody(loss=request.loss_fn, rows=rows, settings=settings), tokens


def _settings(request: Any) -> dict[str, float]:
    known = SETTINGS[request.loss_fn]
    config = request.loss_fn_config_v2
    for name in config:
        if name not in known:
            text = f"{request.loss_fn} has no setting {name!r}; it has {', '.join(known) or 'none'}"
            raise invalid(text, f"loss_fn_config.{name}", UNSUPPORTED)
        if not np.isfinite(config[name].number) or config[name].text:
            raise invalid("must be a finite number", f"loss_fn_config.{name}")
    values: dict[str, float] = {}
    for name, usual in known.items():
        value = config[name].number if name in config else usual
        if value is None:
            raise invalid(f"{request.loss_fn} needs it", f"loss_fn_config.{name}")
        values[name] = float(value)
    return values


def _row(loss: str, datum: Any, where: str, limits: ModelLimits) -> LossRow:
    parts: list[bytes] = []
    for chunk in datum.model_input:
        if chunk.HasField("image") or chunk.HasField("dmel"):
            text = "images and audio are not served: model_input takes tokens alone"
            raise invalid(text, f"{where}.model_input", UNSUPPORTED)
        parts.append(chunk.encoded_text.tokens)
    tokens = _ids(b"".join(parts), f"{where}.model_input", limits)
    if not 1 <= len(tokens) <= limits.max_length:
        text = f"must have 1 to {limits.max_length} tokens, not {len(tokens)}"
        raise invalid(text, f"{where}.model_input")
    inputs = datum.loss_fn_inputs
    wanted = ("weights",) if loss == "cross_entropy" else (LOGPROBS, "advantages")
    for name in inputs:
        if name not in ("target_tokens", *wanted):
            text = f"{loss} takes no {name!r}; it takes target_tokens, {', '.join(wanted)}"
            raise invalid(text, f"{where}.loss_fn_inputs.{name}", UNSUPPORTED)
    inputs_of_loss = {
        name: _floats(inputs, name, len(tokens), where, is_needed=loss != "cross_entropy")
        for name in wanted
    }
    targets = _targets(inputs, len(tokens), where, limits)
    return LossRow(tokens=tokens.astype("<i4").tobytes(), targets=targets, **inputs_of_loss)


def _targets(inputs: Any, length: int, where: str, limits: ModelLimits) -> bytes:
    param = f"{where}.loss_fn_inputs.target_tokens"
    if "target_tokens" not in inputs:
        raise invalid("is required", param)
    values = _dense(inputs["target_tokens"], length, param)
    _check_ids(values, param, limits)
    return values.astype("<i4").tobytes()


def _floats(inputs: Any, name: str, length: int, where: str, *, is_needed: bool) -> bytes:
    """Return float32 values for each token; where they may be left out, each is 1."""
    param = f"{where}.loss_fn_inputs.{name}"
    if name not in inputs:
        if is_needed:
            raise invalid("is required", param)
        return np.ones(length, "<f4").tobytes()
    values = _dense(inputs[name], length, param).astype("<f4")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise invalid(f"its value {at} is {values[at]}; all must be finite", param)
    return values.tobytes()


def _dense(tensor: Any, length: int, param: str) -> np.ndarray[Any, Any]:
    """Return the values of a tensor of one dimension."""
    if tensor.HasField("sparse_csr") or len(tensor.shape) > 1:
        text = "must have one dimension: several targets for a token are not served"
        raise invalid(text, param, UNSUPPORTED)
    kind = NUMPY.get(tensor.dtype)
    if kind is None or len(tensor.dense) % kind.itemsize:
        raise invalid("must be float32 or int64", param)
    values: np.ndarray[Any, Any] = np.frombuffer(tensor.dense, kind)
    if len(values) != length:
        raise invalid(f"has {len(values)} values for {length} tokens", param)
    return values


def _ids(content: bytes, param: str, limits: ModelLimits) -> np.ndarray[Any, Any]:
    kind = NUMPY[INT32]
    if len(content) % kind.itemsize:
        raise invalid("its tokens are no int32", param)
    values: np.ndarray[Any, Any] = np.frombuffer(content, kind)
    _check_ids(values, param, limits)
    return values


def _check_ids(values: np.ndarray[Any, Any], param: str, limits: ModelLimits) -> None:
    most = (limits.vocabulary or 2**31) - 1
    wrong = np.flatnonzero((values < 0) | (values > most))
    if len(wrong):
        at = int(wrong[0])
        text = f"token {at} is {values[at]}; those of the model are 0 to {most}"
        raise invalid(text, param)


def step_body(asked: StepRequest) -> StepBody:
    """Return the command of an optimizer step."""
    params = asked.adam_params
    return StepBody(
        learning_rate=params.learning_rate,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
        grad_clip_norm=params.grad_clip_norm,
    )


def sample_body(
    asked: SampleRequest, seed: int, limits: ModelLimits
) -> tuple[SampleBody, Tokens, Tokens]:
    """Return the command of a sample, its prompt's tokens, and the most that it may sample.

    Raises ApiError 400.

    seed: where the request has none
    """
    ids: list[int] = []
    for chunk in asked.prompt.chunks:
        if chunk.type != "encoded_text":
            text = "images and audio are not served: prompt takes tokens alone"
            raise invalid(text, "prompt", UNSUPPORTED)
        ids += chunk.tokens
    prompt = np.array(ids, "<i8")
    _check_ids(prompt, "prompt", limits)
    params = asked.sampling_params
    left = limits.max_length - len(prompt)
    if not len(prompt) or left < 1:
        text = f"must have 1 to {limits.max_length - 1} tokens, not {len(prompt)}"
        raise invalid(text, "prompt")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "target_prompt_logprobs"):
        if getattr(asked, name):
            raise invalid("is not served", name, UNSUPPORTED)
    stops = [params.stop] if isinstance(params.stop, str) else params.stop
    most = left if params.max_tokens is None else min(left, params.max_tokens)
    body = SampleBody(
        prompt=prompt.astype("<i4").tobytes(),
        samples=asked.num_samples,
        tokens_max=most,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        seed=seed if params.seed is None else params.seed,
        stop_tokens=None if stops is None else tuple(s for s in stops if isinstance(s, int)),
        stop_texts=tuple(stop for stop in stops or () if isinstance(stop, str)),
        prompt_logprobs=bool(asked.prompt_logprobs),
    )
    return body, len(prompt), asked.num_samples * most


def pass_output(answer: PassAnswer) -> bytes:
    """Return the answer to a pass as the SDK reads it."""
    output = PassOutput(loss_fn_output_type="ArrayRecord")
    ends = np.cumsum([0, *map(len, answer.logprobs)], dtype="<i8")
    record = output.loss_fn_outputs.add(num_datums=len(answer.logprobs))
    field = record.fields[LOGPROBS]
    field.data, field.offsets, field.dtype = b"".join(answer.logprobs), ends.tobytes(), FLOAT32
    output.metrics["loss:sum"] = answer.loss
    content: bytes = output.SerializeToString(deterministic=True)
    return content


def sample_output(answer: SampleAnswer) -> bytes:
    """Return sampled sequences as the SDK reads them."""
    output = SampleOutput(prompt_logprobs=answer.prompt_logprobs)
    for sequence in answer.sequences:
        output.sequences.add(
            stop_reason=STOPPED if sequence.stopped else CUT,
            tokens=sequence.tokens,
            logprobs=sequence.logprobs,
        )
    content: bytes = output.SerializeToString(deterministic=True)
    return content
