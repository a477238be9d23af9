"""`tunery chat`: ask a model, or two models the same."""

import json
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.billing.currency import in_units
from tunery.cli import _api

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG = """\
\b
Examples:
  tunery chat ft:smollm2-135m-instruct:local:demo:1a2b3c4d
  tunery chat ft:smollm2-135m-instruct:local:demo:1a2b3c4d --compare smollm2-135m-instruct
  tunery chat smollm2-135m-instruct --prompt "Who are you?" --temperature 0
  tunery chat smollm2-135m-instruct --prompt "Who are you?" --json
"""
YOU: Final = "you"


@click.command("chat", epilog=EPILOG)
@click.argument("model")
@click.option("--compare", "other", help="Another model, such as its base, to ask the same.")
@click.option("--prompt", help="One question. [a conversation, until an empty line]")
@click.option("--system", help="System prompt for both.")
@click.option("--max-tokens", type=click.IntRange(1), default=256, help="Of an answer. [256]")
@click.option(
    "--temperature", type=click.FloatRange(0, 2), default=0.0, help="1: as OpenAI's API. [0]"
)
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@_api.asking
def command(
    api: "Api",
    model: str,
    other: str | None,
    prompt: str | None,
    system: str | None,
    max_tokens: int,
    temperature: float,
    seed: int | None,
    as_json: bool,
) -> None:
    """Ask a model. Its first answer waits until the model is loaded."""
    if as_json and prompt is None:
        raise click.UsageError("--json prints the answers to one question: name it with --prompt")
    beginning = [] if system is None else [{"role": "system", "content": system}]
    conversations = {name: list(beginning) for name in (model, other) if name is not None}
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    if prompt is not None:
        answers = [_ask(api, name, said, prompt, options) for name, said in conversations.items()]
        if as_json:
            click.echo(json.dumps(answers))
        else:
            for answer in answers:
                _show(answer, with_name=other is not None)
        return
    while question := _next_question():
        for name, said in conversations.items():
            answer = _ask(api, name, said, question, options)
            _show(answer, with_name=other is not None)
            use = answer["usage"]
            spent = f"{use['prompt_tokens']} tokens read, {use['completion_tokens']} written"
            if (price := use.get("price")) is not None:
                spent += f", {in_units(price['amount_micro'])} {price['currency']}"
            click.echo(click.style(spent, dim=True))


def _next_question() -> str:
    """Read a line of input; empty at its end."""
    try:
        question: str = click.prompt(YOU, default="", show_default=False)
    except click.Abort:
        return ""
    return question


def _ask(
    api: "Api", model: str, said: list[dict[str, str]], question: str, options: dict[str, Any]
) -> dict[str, Any]:
    """The response to the next question of a conversation, to which both are added."""
    said.append({"role": "user", "content": question})
    answer = _api.complete(api, model, said, options)
    message = answer["choices"][0]["message"]
    said.append({"role": message["role"], "content": message["content"]})
    return answer


def _show(answer: dict[str, Any], *, with_name: bool) -> None:
    choice = answer["choices"][0]
    lead = f"{answer['model']}: " if with_name else ""
    cut = " …" if choice["finish_reason"] == "length" else ""
    click.echo(f"{lead}{choice['message']['content'].strip()}{cut}")
