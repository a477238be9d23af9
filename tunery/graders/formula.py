"""Arithmetic on the scores of graders: `calculate_output` of a multi grader. Nothing is executed.

OpenAI's operators (`+ - * / ^`) and functions. All numbers are floats, so that none grows.
"""

import ast
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

CHARACTERS_MAX: Final = 500
NODES_MAX: Final = 200
Node: TypeAlias = ast.expr

OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.Pow: math.pow,  # of floats alone: a negative number has no root here
}
# By name: the function, the fewest and the most of its arguments.
FUNCTIONS: Final[Mapping[str, tuple[Callable[..., float], int, int]]] = {
    "min": (min, 2, NODES_MAX),
    "max": (max, 2, NODES_MAX),
    "abs": (abs, 1, 1),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "exp": (math.exp, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "log": (math.log, 1, 1),
}


class FormulaError(ValueError):
    """A formula that is not understood, or that has no value for some scores."""


@dataclass(frozen=True)
class Formula:
    """A formula that was checked; `parse_formula` makes them."""

    text: str  # source text
    _root: Node

    def value(self, scores: Mapping[str, float]) -> float:
        """Its value for the scores of the graders that it names.

        Raises `FormulaError` where it has none, as after a division by zero.
        """
        try:
            value = float(_value(self._root, scores))
        except (ArithmeticError, ValueError) as error:
            raise FormulaError(f"{self.text!r} has no value here: {error}") from error
        if not math.isfinite(value):
            raise FormulaError(f"{self.text!r} has no finite value here")
        return value


def parse_formula(text: str, names: Collection[str]) -> Formula:
    """Check a formula. Raises `FormulaError` with what it may contain.

    names: names of the graders whose scores it may use
    """
    if len(text) > CHARACTERS_MAX:
        raise FormulaError(f"it has {len(text)} characters, and {CHARACTERS_MAX} at most are read")
    try:
        root = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormulaError(f"{text!r} is no arithmetic expression") from error
    if sum(1 for _ in ast.walk(root)) > NODES_MAX:
        raise FormulaError(f"it has more than {NODES_MAX} parts")
    _check(root, names)
    return Formula(text, root)


def _check(node: Node, names: Collection[str]) -> None:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            parts: list[Node] = []
        case ast.Name(id=name) if name in names:
            parts = []
        case ast.Name(id=name):
            known = ", ".join(sorted(names))
            raise FormulaError(f"{name!r} is no grader of it; those are {known}")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            parts = args
            if any(isinstance(arg, ast.Starred) for arg in args):
                raise FormulaError(f"{name} takes its arguments one by one, without *")
            _, fewest, most = FUNCTIONS[name]
            if not fewest <= len(args) <= most:
                wanted = str(fewest) if fewest == most else f"at least {fewest}"
                raise FormulaError(f"{name} takes {wanted} arguments, not {len(args)}")
        case _:
            shown = ast.unparse(node)[:40]
            raise FormulaError(
                f"{shown!r} is not taken: a formula has numbers, names of graders, + - * / ^, "
                f"parentheses, and the functions {', '.join(FUNCTIONS)}"
            )
    for part in parts:
        _check(part, names)


def _value(node: Node, scores: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return scores[name]
        case ast.UnaryOp(op=operator, operand=operand):
            value = _value(operand, scores)
            return -value if isinstance(operator, ast.USub) else value
        case ast.BinOp(left=left, op=operator, right=right):
            return OPERATORS[type(operator)](_value(left, scores), _value(right, scores))
        case ast.Call(func=ast.Name(id=name), args=args):
            return float(FUNCTIONS[name][0](*(_value(arg, scores) for arg in args)))
        case _:
            raise FormulaError(f"{type(node).__name__} was not checked")
