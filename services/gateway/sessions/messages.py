"""The messages of the Tinker SDK that travel as protobuf: those of passes and samples.

Their form is declared here as data, by the numbers and names that the SDK has on the wire.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError

PACKAGE: Final = "tunery.sessions"
KINDS: Final = descriptor_pb2.FieldDescriptorProto
TYPES: Final = {
    "bytes": KINDS.TYPE_BYTES,
    "text": KINDS.TYPE_STRING,
    "int32": KINDS.TYPE_INT32,
    "int64": KINDS.TYPE_INT64,
    "uint32": KINDS.TYPE_UINT32,
    "double": KINDS.TYPE_DOUBLE,
    "float": KINDS.TYPE_FLOAT,
    "bool": KINDS.TYPE_BOOL,
}
FLOAT32, INT64, INT32 = 1, 2, 3  # types of tensors
STOPPED, CUT = 0, 1  # why a sequence ended


class Field(NamedTuple):
    """One field of a message; `form`: a type, a message, or `text→…` for a map."""

    number: int
    name: str
    form: str
    many: bool = False


MESSAGES: Final[dict[str, tuple[Field, ...]]] = {
    "Tokens": (Field(1, "tokens", "bytes"),),
    "Image": (Field(1, "data", "bytes"),),
    "Chunk": (
        Field(1, "encoded_text", "Tokens"),
        Field(2, "image", "Image"),
        Field(3, "dmel", "Image"),
    ),
    "SparseCsr": (
        Field(1, "values", "bytes"),
        Field(2, "crow_indices", "bytes"),
        Field(3, "col_indices", "bytes"),
    ),
    "Tensor": (
        Field(1, "dense", "bytes"),
        Field(2, "sparse_csr", "SparseCsr"),
        Field(3, "dtype", "int32"),
        Field(4, "shape", "int64", many=True),
    ),
    "Datum": (
        Field(1, "model_input", "Chunk", many=True),
        Field(2, "loss_fn_inputs", "text→Tensor"),
    ),
    "LossConfigValue": (Field(1, "number", "double"), Field(2, "text", "text")),
    "ForwardBackwardRequest": (
        Field(1, "model_id", "text"),
        Field(2, "seq_id", "int32"),
        Field(3, "data", "Datum", many=True),
        Field(4, "loss_fn", "text"),
        Field(6, "forward_only", "bool"),
        Field(7, "loss_fn_config_v2", "text→LossConfigValue"),
    ),
    "BatchedTensor": (
        Field(1, "data", "bytes"),
        Field(2, "offsets", "bytes"),
        Field(3, "dtype", "int32"),
        Field(4, "trailing_shape", "int64", many=True),
    ),
    "ArrayRecord": (
        Field(1, "type_tag", "text"),
        Field(2, "fields", "text→BatchedTensor"),
        Field(3, "num_datums", "int64"),
    ),
    "ForwardBackwardOutput": (
        Field(1, "loss_fn_output_type", "text"),
        Field(2, "loss_fn_outputs", "ArrayRecord", many=True),
        Field(3, "metrics", "text→double"),
    ),
    "SampledSequence": (
        Field(1, "stop_reason", "int32"),
        Field(2, "tokens", "bytes"),
        Field(3, "logprobs", "bytes"),
    ),
    "SampleResponse": (
        Field(1, "sequences", "SampledSequence", many=True),
        Field(2, "prompt_logprobs", "bytes"),
    ),
}


def _file() -> Any:
    described = descriptor_pb2.FileDescriptorProto(
        name="tunery/sessions.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = described.message_type.add(name=name)
        for field in fields:
            _describe(message, name, field)
    return described


def _describe(message: Any, owner: str, field: Field) -> None:
    key, _, value = field.form.rpartition("→")
    if not key:
        _add(message, field.number, field.name, field.form, many=field.many)
        return
    entry_name = "".join(part.title() for part in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    _add(entry, 1, "key", key)
    _add(entry, 2, "value", value)
    _add(message, field.number, field.name, f"{owner}.{entry_name}", many=True)


def _add(message: Any, number: int, name: str, form: str, *, many: bool = False) -> None:
    label = KINDS.LABEL_REPEATED if many else KINDS.LABEL_OPTIONAL
    described = message.field.add(name=name, number=number, label=label)
    if form in TYPES:
        described.type = TYPES[form]
    else:
        described.type, described.type_name = KINDS.TYPE_MESSAGE, f".{PACKAGE}.{form}"


def _classes() -> Iterator[tuple[str, Any]]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    for name in MESSAGES:
        descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
        yield name, message_factory.GetMessageClass(descriptor)


_CLASSES: Final = dict(_classes())
# untyped: protobuf makes the classes
PassRequest: Final[Any] = _CLASSES["ForwardBackwardRequest"]
PassOutput: Final[Any] = _CLASSES["ForwardBackwardOutput"]
SampleOutput: Final[Any] = _CLASSES["SampleResponse"]
