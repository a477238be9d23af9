"""Templates of graders."""

import pytest

from tunery.graders.templates import (
    RENDERED_CHARACTERS_MAX,
    TEMPLATE_CHARACTERS_MAX,
    VariableUnknown,
    render,
    template_problem,
)

VALUES = {
    "item": {"answer": "Paris", "steps": [{"name": "one"}], "n": 3, "says": "{{item.answer}}"},
    "sample": {"output_text": "It is Paris.", "output_json": {"city": "Paris"}},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain {text}", "plain {text}"),
        ("{{item.answer}}!", "Paris!"),
        ("{{ item.answer }}", "Paris"),
        ("{{sample.output_text}} {{item.n}}", "It is Paris. 3"),
        ("{{item.steps[0].name}}", "one"),
        ("{{item.steps}}", '[{"name": "one"}]'),
        ("{{sample.output_json.city}}", "Paris"),
        ("{{item.says}}", "{{item.answer}}"),  # inserted text is not rendered again
    ],
)
def test_variables_are_replaced(template: str, text: str) -> None:
    assert template_problem(template) is None
    assert render(template, VALUES).text == text


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{answer}}", "is no variable"),
        ("{{item}}", "is no variable"),
        ("{{item.a|upper}}", "is no variable"),
        ("{{item['a']}}", "is no variable"),
        ("{{other.a}}", "is no variable"),
        ("{{sample.tools}}", "of a sample there are sample.output_text, sample.output_json"),
        ("{{item.a}}" * 65, "64 at most"),
        ("x" * (TEMPLATE_CHARACTERS_MAX + 1), "at most are read"),
    ],
)
def test_an_unknown_variable_or_an_oversized_template_is_refused(template: str, said: str) -> None:
    problem = template_problem(template)
    assert problem is not None
    assert said in problem


@pytest.mark.parametrize(
    "template", ["{{item.none}}", "{{item.steps[1]}}", "{{item.answer.x}}", "{{item.__class__}}"]
)
def test_a_variable_that_a_row_lacks_is_named(template: str) -> None:
    with pytest.raises(VariableUnknown) as missing:
        render(template, VALUES)
    assert missing.value.args[0] == template.strip("{}")


def test_a_rendered_text_is_cut_at_the_limit() -> None:
    values = {"item": {"a": "x" * 20_000}, "sample": {}}
    rendered = render("{{item.a}}" * 64, values)
    assert (len(rendered.text), rendered.cut) == (RENDERED_CHARACTERS_MAX, True)
