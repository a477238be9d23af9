"""Queries of alerts and panels, parsed: which series they ask for, and which labels they give."""

import re
from functools import cache
from typing import Any, Final, TypeAlias

import promql_parser as promql
import yaml

from tests.repo.metrics import ROOT, declared

PROMETHEUS: Final = ROOT / "infra" / "prometheus"
#: what Prometheus itself adds to every series that it scrapes
SCRAPED: Final = frozenset({"instance", "job"})
#: series that Prometheus makes
OF_PROMETHEUS: Final = {
    "up": SCRAPED,
    "ALERTS": SCRAPED | {"alertname", "alertstate", "severity"},
}
#: variables that Grafana replaces by a duration before it asks
DURATIONS: Final = re.compile(r"\$__(?:rate_interval|range)\b")
Labels: TypeAlias = frozenset[str]


class QueryError(ValueError):
    """A query asks for what there is not; the text names it."""


@cache
def rules() -> tuple[dict[str, Any], ...]:
    """Records and alerts of all groups, in their order."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


def metric_of(series: str) -> str:
    """The metric of the catalogue whose series this is; the series itself if there is none."""
    plain = re.sub(r"_(?:bucket|sum|count)$", "", series)
    return plain if plain in declared() else series


@cache
def series() -> dict[str, Labels]:
    """The labels of every series that our services, our records and Prometheus make."""
    known = dict(OF_PROMETHEUS)
    for name, (_, metric) in declared().items():
        labels = SCRAPED | frozenset(metric.labels)
        if metric.kind == "histogram":
            known |= {f"{name}_bucket": labels | {"le"}}
            known |= {f"{name}_sum": labels, f"{name}_count": labels}
        else:
            known[name] = labels
    for rule in rules():
        if "record" in rule:
            known[rule["record"]] = _labels(parse(rule["expr"]), known) or frozenset()
    return known


def parse(query: str) -> promql.Expr:
    """The tree of a query. Raises QueryError for what Prometheus would not read."""
    try:
        return promql.parse(DURATIONS.sub("5m", query))
    except ValueError as error:
        raise QueryError(f"{query}: {error}") from error


def selectors_of(query: str) -> list[promql.VectorSelector]:
    """Every place at which a query names a series. Raises QueryError."""
    selectors: list[promql.VectorSelector] = []

    def visit(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            selectors.append(node)
        return True

    promql.walk(parse(query), visit)
    return selectors


def labels_of(query: str) -> Labels:
    """Labels of a query's results. Raises QueryError for series and labels that do not exist."""
    return _labels(parse(query), series()) or frozenset()


def _labels(node: Any, known: dict[str, Labels]) -> Labels | None:
    """Labels of a vector; None for a scalar or a text."""
    match node:
        case promql.VectorSelector():
            return _selected(node, known)
        case promql.MatrixSelector():
            return _selected(node.vector_selector, known)
        case promql.AggregateExpr():
            return _grouped(node, _labels(node.expr, known) or frozenset())
        case promql.Call():
            return _called(node, [_labels(argument, known) for argument in node.args])
        case promql.BinaryExpr():
            return _joined(node, _labels(node.lhs, known), _labels(node.rhs, known))
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _labels(node.expr, known)
        case promql.NumberLiteral() | promql.StringLiteral():
            return None
        case _:
            raise QueryError(f"{node}: a form that no query of ours has had")


def _selected(node: promql.VectorSelector, known: dict[str, Labels]) -> Labels:
    if node.name not in known:
        raise QueryError(f"{node}: there is no metric {node.name}")
    labels = known[node.name]
    _those_of({matcher.name for matcher in node.matchers.matchers}, labels, node)
    return labels


def _grouped(node: promql.AggregateExpr, labels: Labels) -> Labels:
    if str(node.op) in {"topk", "bottomk"}:
        return labels
    if node.modifier is None:
        return frozenset()
    named = _those_of(set(node.modifier.labels), labels, node)
    return named if node.modifier.type == promql.AggModifierType.By else labels - named


def _called(node: promql.Call, arguments: list[Labels | None]) -> Labels | None:
    if node.func.return_type == promql.ValueType.Scalar:
        return None
    labels: Labels = frozenset().union(*filter(None, arguments))
    if node.func.name == "histogram_quantile":
        return labels - _those_of({"le"}, labels, node)
    return labels


def _joined(node: promql.BinaryExpr, left: Labels | None, right: Labels | None) -> Labels | None:
    if left is None or right is None:
        return right if left is None else left
    if left != right:
        raise QueryError(f"{node}: {set(left)} match no series of {set(right)}")
    return left


def _those_of(named: set[str], labels: Labels, node: Any) -> Labels:
    if missing := named - labels:
        raise QueryError(f"{node}: there is no label {', '.join(sorted(missing))}")
    return frozenset(named)
