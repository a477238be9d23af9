"""A form's submission as a person would send it: curl, Python, the command line."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: fields that the `openai` package has arguments for
OPENAI: Final = frozenset({"model", "training_file", "suffix", "method"})
#: option of the command line by the field's path
OPTIONS: Final = {
    "model": "--model",
    "training_file": "--file",
    "suffix": "--suffix",
    "method.supervised.hyperparameters.n_epochs": "--epochs",
    "method.supervised.hyperparameters.batch_size": "--batch-size",
    "method.supervised.hyperparameters.learning_rate_multiplier": "--learning-rate-multiplier",
}
UNSAID: Final = frozenset({"method.type"})  # it is the default


def snippets(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the same submission for each tool. Addresses and keys come from the environment."""
    return {"curl": _curl(body), "Python": _python(body), "the command line": _command(body)}


def _curl(body: Mapping[str, Any]) -> str:
    return f"""\
curl $OPENAI_BASE_URL/fine_tuning/jobs -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" -d @- <<'BODY'
{json.dumps(body, indent=2)}
BODY"""


def _python(body: Mapping[str, Any]) -> str:
    own = {name: value for name, value in body.items() if name not in OPENAI}
    lines = [f"    {name}={value!r}," for name, value in body.items() if name in OPENAI]
    lines += [f"    extra_body={own!r},"] if own else []
    return "\n".join(
        ("from openai import OpenAI", "", "job = OpenAI().fine_tuning.jobs.create(", *lines, ")")
    )


def _command(body: Mapping[str, Any]) -> str:
    words = ["tunery", "job", "submit"]
    for name, value in _flat(body):
        if name in UNSAID:
            continue
        option = OPTIONS.get(name)
        words += [option, str(value)] if option else ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def _flat(body: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a body by their paths."""
    for name, value in body.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, value
