"""Renders a base model's chat template in a sandbox with limits on time and output.

The result is the same as with Transformers: Jinja has the same options, filters and globals. One
difference is intended: `strftime_now` returns a fixed day, so that equal data gives equal bytes.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache, wraps
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tunery.data.dialects.parsing import Object
from tunery.data.findings.limits import TEMPLATE_CHARS_MAX, TEMPLATE_MS_MAX

# The day that the template of Llama 3 uses when it has no clock.
TEMPLATE_DAY: Final = date(2024, 7, 26)
COMPILED_MAX: Final = 16  # cached templates; compiling one takes some milliseconds
GENERATION_OPENS: Final = "_generation_opens"
GENERATION_CLOSES: Final = "_generation_closes"
_STEP: Final = "_step"
#: filters that write as much as a number says, however short the texts are
SIZED_FILTERS: Final = ("batch", "center", "format", "indent", "slice")
#: a field of 100,000 characters or more, in a format with `%` or with braces
WIDE: Final = re.compile(r"[%:][^A-Za-z%}]*\d{6}")


class TemplateError(Exception):
    """Raised when a template refuses a conversation or exceeds a limit. The message says which."""


class Template:
    """A compiled chat template.

    source: its text
    reads: the names of the variables it uses
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile a template. Raises `TemplateError` when it does not compile."""
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._template, self.reads = _compile(source)

    def render(
        self,
        messages: list[Object],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
        generation: tuple[str, str] = ("", ""),
    ) -> str:
        """Render a conversation.

        `generation` is the text to write before and after each `{% generation %}` block.

        Raises `TemplateError` when the template fails or exceeds a limit.
        """
        variables = {
            **self._special_tokens,
            GENERATION_OPENS: generation[0],
            GENERATION_CLOSES: generation[1],
            _STEP: _Budget().step,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        blocks: list[str] = []
        chars = 0
        try:
            for block in self._template.generate(variables):
                blocks.append(block)
                chars += len(block)
                if chars > TEMPLATE_CHARS_MAX:
                    raise TemplateError(f"it wrote more than {TEMPLATE_CHARS_MAX:,} characters")
        except TemplateError:
            raise
        except RecursionError as error:
            raise TemplateError("it is nested too deep") from error
        except MemoryError as error:
            raise TemplateError("it ran out of memory") from error
        except Exception as error:  # an expression of the template can raise anything
            raise TemplateError(str(error)[:300] or type(error).__name__) from error
        return "".join(blocks)


@lru_cache(maxsize=COMPILED_MAX)
def _compile(source: str) -> tuple[jinja2.Template, frozenset[str]]:
    """Compile a template, and find the variables that it reads. Raises `TemplateError`."""
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.filters["sum"] = _sum_of_numbers(environment.filters["sum"])
    for name in SIZED_FILTERS:
        environment.filters[name] = _sized(environment.filters[name], is_format=name == "format")
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=TEMPLATE_DAY.strftime,
        dict=dict,
        namespace=jinja2.utils.Namespace,
    )
    try:
        reads = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        return environment.from_string(source), reads
    except (jinja2.TemplateError, RecursionError) as error:
        raise TemplateError(f"the chat template does not compile: {error}") from error


class _Budget:
    """The time limit of one rendering, checked in every iteration and macro call."""

    def __init__(self) -> None:
        self._until = time.monotonic() + TEMPLATE_MS_MAX / 1000

    def step(self) -> str:
        if time.monotonic() > self._until:
            raise TemplateError(f"it ran longer than {TEMPLATE_MS_MAX} ms")
        return ""


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with the time limit in every loop and macro, and limits on the size of texts."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise TemplateError("powers are not allowed")
        if operator == "*" and (isinstance(left, str | list) or isinstance(right, str | list)):
            times = right if isinstance(right, int) else left
            if isinstance(times, int) and times > TEMPLATE_CHARS_MAX // 64:
                raise TemplateError("it repeats a text too often")
        if operator == "%":
            _check_sizes(left)
        return _checked(super().call_binop(context, operator, left, right))

    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or a method of a text such as `center`."""
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `str.format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | list):
            _check_sizes(owner if getattr(method, "__name__", "") == "format" else None, *args)
        return _checked(super().call(context, function, *args, **kwargs))

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all((jinja2.nodes.For, jinja2.nodes.Macro)):
            step = jinja2.nodes.Call(jinja2.nodes.Name(_STEP, "load"), [], [], None, None)
            output = jinja2.nodes.Output([step])
            vars(node)["body"].insert(0, output.set_lineno(node.lineno).set_environment(self))
        return tree


def _check_sizes(text: Any, *numbers: Any) -> None:
    """Raises `TemplateError` when a format or an argument asks for a text that is too long."""
    wide = isinstance(text, str) and WIDE.search(text) is not None
    if wide or any(isinstance(number, int) and number > TEMPLATE_CHARS_MAX for number in numbers):
        raise TemplateError(f"it asks for more than {TEMPLATE_CHARS_MAX:,} characters")


def _checked(result: Any) -> Any:
    if isinstance(result, str | list) and len(result) > TEMPLATE_CHARS_MAX:
        raise TemplateError(f"it built more than {TEMPLATE_CHARS_MAX:,} characters")
    return result


def _sized(function: Callable[..., Any], *, is_format: bool) -> Callable[..., Any]:
    @wraps(function)
    def sized(value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_sizes(value if is_format else None, *args, *kwargs.values())
        return function(value, *args, **kwargs)

    return sized


def _sum_of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`sum` of lists takes a time that grows with the square of their number."""

    @wraps(function)
    def summing(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> Any:
        if not isinstance(start, int | float):
            raise TemplateError("it sums what are no numbers")
        return function(environment, values, attribute, start)

    return summing


class _Generation(jinja2.ext.Extension):
    """`{% generation %} … {% endgeneration %}`: encloses what the assistant writes."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as an instance attribute

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [_output(GENERATION_OPENS, line), *body, _output(GENERATION_CLOSES, line)]


def _output(name: str, line: int) -> jinja2.nodes.Node:
    return jinja2.nodes.Output([jinja2.nodes.Name(name, "load")]).set_lineno(line)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message)[:300])


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Encode JSON without escaping HTML, which Jinja's own filter does."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
