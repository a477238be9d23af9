"""The labels of chats under the templates of real families, beside TRL's own training templates.

TRL has for each family a template with `{% generation %}` blocks. For 31 families the labels are
compared with those of the family's own template. `FAMILIES` lists every difference that is allowed.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import tokenizers

from tunery.data.dialects.conversation import (
    REASONING,
    REASONING_NAMES,
    Conversation,
    without_reasoning,
)
from tunery.data.findings.finding import Note
from tunery.data.tokens.chat_renderer import (
    TemplateLayout,
    learn_layout,
    roles_of,
    sample_conversation,
)
from tunery.data.tokens.message_marks import MarkedText
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer

THINK: Final = "<think>\n\n</think>\n\n"
EMPTY: Final[tuple[str, ...]] = ("",)


@dataclass(frozen=True)
class Family:
    """How TRL's labels of a family differ from ours."""

    eos: str  # the family's end-of-sequence token
    # what TRL labels before the last answer, though the generation prompt writes it
    before: tuple[str, ...] = EMPTY
    # the same before earlier answers; by default as before the last one
    before_earlier: tuple[str, ...] = ()
    after: str = ""  # what TRL labels after the end token
    # the same after the last answer; by default as after earlier ones
    after_last: str | None = None
    # rows of which the family's template leaves out reasoning that is to be learnt. TRL learns them
    # without, or changes the template
    refused: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()  # rows that both templates refuse
    # tokens that end an answer, in `generation_config.json`
    stops: tuple[str, ...] = field(default=())


FIELD: Final = frozenset(("field", "field2"))  # templates without reasoning
INLINE: Final = FIELD | {"inline", "inline2"}  # templates that cut reasoning out of the text
EARLIER: Final = frozenset(("inline2", "field2"))  # templates that leave out earlier reasoning
LINE: Final = "\n"
QWEN35: Final = Family(
    "<|im_end|>",
    before=("<think>\n", "<think>"),
    before_earlier=(THINK,),
    after=LINE,
    refused=EARLIER,
)
NEMOTRON: Final = Family("<|im_end|>", ("<think>\n", "<think>"), after=LINE, refused=EARLIER)
PHI: Final = Family("<|endoftext|>", after=LINE, after_last="\n<|endoftext|>", refused=FIELD)
CHATML: Final = Family("<|im_end|>", after=LINE, refused=FIELD)
FAMILIES: Final[dict[str, Family]] = {
    "cohere": Family("<|END_OF_TURN_TOKEN|>", refused=FIELD),
    "cohere2": Family("<|END_OF_TURN_TOKEN|>", refused=FIELD),
    "deepseek_r1_distill": Family("<｜end▁of▁sentence｜>", ("<｜Assistant｜>",), refused=INLINE),
    "deepseekv3": Family("<｜end▁of▁sentence｜>", ("<｜Assistant｜>",), refused=INLINE),
    "diffusion_gemma": Family("<turn|>", after=LINE, refused=frozenset(("field2",))),
    "gemma": Family("<end_of_turn>", after=LINE, refused=FIELD, failed=frozenset(("system",))),
    "gemma3": Family("<end_of_turn>", after=LINE, refused=FIELD),
    "glm4moe": Family(
        "<|endoftext|>", refused=EARLIER, stops=("<|endoftext|>", "<|user|>", "<|observation|>")
    ),
    "gptoss": Family("<|return|>", ("<|start|>assistant",), refused=frozenset(("field2",))),
    "idefics3": Family("<end_of_utterance>", after=LINE, refused=FIELD),
    "lfm2": CHATML,
    "lfm2_v2": CHATML,
    "llama3": Family("<|eot_id|>", refused=FIELD),
    "llava_next": Family("</s>", before=("", " "), refused=FIELD),
    "muse_glimmer": Family("<|eot|>", ("<|start|>assistant",)),
    "nemotron_3_5_lightning": NEMOTRON,
    "nemotron_3_nano": NEMOTRON,
    "nemotron_3_super": NEMOTRON,
    "nemotron_3_ultra": NEMOTRON,
    "phi3": PHI,
    "phi3_5": PHI,
    "qwen2_5": Family("<|im_end|>", before=(LINE,), after=LINE, refused=FIELD),
    "qwen2_5_vl": CHATML,
    "qwen3": Family("<|im_end|>", before_earlier=(THINK,), after=LINE, refused=EARLIER),
    "qwen3_5_nothink": Family(
        "<|im_end|>", (THINK, "<think>\n"), (THINK,), after=LINE, refused=EARLIER
    ),
    "qwen3_5_think": QWEN35,
    "qwen3_6": QWEN35,
    "qwen3_8": Family("<|im_end|>", ("<think>", "<think>\n"), after=LINE),
    "qwen3_instruct_2507": CHATML,
    "qwen3_vl": CHATML,
    "smolvlm": Family("<end_of_utterance>", after=LINE, refused=FIELD),
}
TOKENS: Final = re.compile(
    r"<\|[^\s|<>{}']{1,40}\|?>|<[a-z_]+\|>|<(?:start|end)_of_turn>|<end_of_utterance>"
    r"|<｜[^｜]{1,40}｜>|</?s>"
)


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


ROWS: Final[dict[str, list[dict[str, Any]]]] = {
    "single": [user("What is 2+2?"), assistant("It is 4.")],
    "system": [
        {"role": "system", "content": "Be brief."},
        user("Hi"),
        assistant("Hello there"),
        user("And now?"),
        assistant("Now this."),
    ],
    "multi": [user("Hi"), assistant("Hello"), user("And now?"), assistant("Now this.")],
    "spaces": [user(" Hi \n"), assistant(" Hello there.\n\n")],
    "inline": [user("Q"), assistant("<think>\nhm\n</think>\n\nA one")],
    "inline2": [
        user("Q"),
        assistant("<think>\nhm\n</think>\n\nA one"),
        user("Q2"),
        assistant("<think>\nhm2\n</think>\n\nA two"),
    ],
    "field": [user("Q"), assistant("A one", reasoning_content="hm")],
    "field2": [
        user("Q"),
        assistant("A one", reasoning_content="hm"),
        user("Q2"),
        assistant("A two", reasoning_content="hm2"),
    ],
}


def templates() -> Path:
    import trl

    return Path(trl.__file__).parent / "chat_templates"


def family_folder(name: str, base_dir: Path, folder: Path) -> Path:
    """The base for tests with the template and the special tokens of a family."""
    family = FAMILIES[name]
    source = (templates() / f"{name}.jinja").read_text(encoding="utf-8")
    parsed = tokenizers.Tokenizer.from_file(str(base_dir / "tokenizer.json"))
    parsed.add_tokens(["<think>", "</think>"])
    parsed.add_special_tokens(sorted({*TOKENS.findall(source), family.eos}))
    parsed.save(str(folder / "tokenizer.json"))
    config = json.loads((base_dir / "tokenizer_config.json").read_text())
    config |= {"eos_token": family.eos, "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    if family.stops:
        ids = [parsed.token_to_id(stop) for stop in family.stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return folder


def learnt(tokenizer: Tokenizer, ids: list[int], mask: bytes | list[int]) -> list[str]:
    """The text of each run of labels."""
    runs: list[list[int]] = []
    before = 0
    for token, label in zip(ids, mask, strict=True):
        if label:
            runs.append([]) if not before else None
            runs[-1].append(token)
        before = label
    return [tokenizer.decode(run) for run in runs]


def conversation(messages: list[dict[str, Any]]) -> Conversation:
    return Conversation(messages, [m["role"] == "assistant" for m in messages])


def labels(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> list[str]:
    rendered = tokenizer.render(conversation(messages))
    assert not isinstance(rendered, Note), rendered
    (encoded,) = tokenizer.encode([rendered])
    return learnt(tokenizer, encoded.ids, encoded.mask)


@pytest.fixture
def load(base_dir: Path, tmp_path: Path) -> Any:
    return lambda name: Tokenizer.load(family_folder(name, base_dir, tmp_path))


@pytest.mark.train
def test_all_families_of_trl_are_listed() -> None:
    names = {path.name.removesuffix("_training.jinja") for path in templates().glob("*_training.*")}
    assert names == FAMILIES.keys()


@pytest.mark.train
@pytest.mark.parametrize("name", FAMILIES)
def test_training_m2_labels_equal_those_of_trl(name: str, base_dir: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    family = FAMILIES[name]
    ours = Tokenizer.load(family_folder(name, base_dir, tmp_path))
    theirs: Any = AutoTokenizer.from_pretrained(tmp_path)
    training = (templates() / f"{name}_training.jinja").read_text(encoding="utf-8")
    for kind, messages in ROWS.items():
        rendered = ours.render(conversation(messages))
        if kind in family.refused | family.failed:
            assert isinstance(rendered, Note), kind
            code = "template_drops_text" if kind in family.refused else "template_failed"
            assert (kind, rendered.code) == (kind, code)
            continue
        assert not isinstance(rendered, Note), (kind, rendered)
        (encoded,) = ours.encode([rendered])
        expected = theirs.apply_chat_template(
            [for_trl(message, name) for message in messages],
            chat_template=training,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        answers = learnt(ours, expected["input_ids"], expected["assistant_masks"])
        mine = learnt(ours, encoded.ids, encoded.mask)
        assert len(mine) == len(answers), kind
        for at, (answer, text) in enumerate(zip(answers, mine, strict=True)):
            last = at == len(answers) - 1
            before = family.before if last else family.before_earlier or family.before
            after = family.after if not last or family.after_last is None else family.after_last
            assert answer in {f"{start}{text}{after}" for start in before}, (kind, text)


@pytest.mark.train
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.refused])
def test_bases_f7_rows_of_every_family_train_without_their_reasoning(name: str, load: Any) -> None:
    tokenizer = load(name)
    for kind in sorted(FAMILIES[name].refused):
        dropped = without_reasoning(conversation(ROWS[kind]))
        assert isinstance(dropped, Conversation)
        said = "".join(labels(tokenizer, dropped.messages))
        assert ("hm" in said, "A one" in said) == (False, True), kind


def for_trl(message: dict[str, Any], name: str) -> dict[str, Any]:
    """A message in the form that TRL passes to a template."""
    if REASONING in message:
        message = {**message, **dict.fromkeys(REASONING_NAMES, message[REASONING])}
    if name in ("idefics3", "llava_next", "smolvlm"):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message


@pytest.mark.train
def test_training_m1_a_row_with_one_question_has_the_labels_of_the_same_row_after_a_system_message(
    load: Any,
) -> None:
    qwen = load("qwen3")
    system = {"role": "system", "content": "Be brief."}
    assert labels(qwen, ROWS["single"]) == [f"{THINK}It is 4.<|im_end|>"]
    assert labels(qwen, [system, *ROWS["single"]]) == [f"{THINK}It is 4.<|im_end|>"]


@pytest.mark.train
def test_training_m1_the_channel_of_an_answer_is_learnt(load: Any) -> None:
    gpt = load("gptoss")
    assert labels(gpt, ROWS["single"]) == ["<|channel|>final<|message|>It is 4.<|return|>"]
    (said,) = labels(gpt, ROWS["field"])
    assert said.startswith("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>")


@pytest.mark.train
def test_training_m2_a_refusal_says_what_the_template_leaves_out(load: Any) -> None:
    deepseek = load("deepseek_r1_distill")
    messages = ROWS["inline2"]
    refused = deepseek.render(conversation(messages))
    assert refused == Note("template_drops_text", "/messages/1", "its reasoning", "hm")
    unlearnt = Conversation(messages[:2] + ROWS["multi"], [False] * 5 + [True])
    rendered = deepseek.render(unlearnt)
    assert not isinstance(rendered, Note), "an answer of weight 0 may lose its reasoning"
    assert [rendered.text[slice(*span)] for span in rendered.trained] == [
        "Now this.<｜end▁of▁sentence｜>"
    ]


@pytest.mark.train
def test_training_m3_all_tokens_that_end_a_turn_are_learnt(load: Any) -> None:
    ends = "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"
    assert labels(load("cohere2"), ROWS["multi"]) == [f"Hello{ends}", f"Now this.{ends}"]


@pytest.mark.train
def test_training_m3_a_template_without_an_end_has_that_of_the_base(
    load: Any, tmp_path: Path
) -> None:
    glm = load("glm4moe")
    assert labels(glm, ROWS["multi"])[1] == "\n<think></think>\nNow this.<|user|>"
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(BaseUnusable, match=r"learn to stop.*generation_config\.json"):
        Tokenizer.load(tmp_path)


CALL: Final = [
    user("Rain?"),
    assistant(
        "",
        tool_calls=[
            {"id": "1", "type": "function", "function": {"name": "rain", "arguments": {"at": "A"}}}
        ],
    ),
    {"role": "tool", "content": "no", "tool_call_id": "1", "name": "rain"},
    assistant("It is dry."),
]


@pytest.mark.train
@pytest.mark.parametrize(
    ("name", "call"),
    [
        (
            "gptoss",
            ' to=functions.rain<|channel|>commentary json<|message|>{"at": "A"}<|call|>',
        ),
        (
            "qwen2_5",
            '<tool_call>\n{"name": "rain", "arguments": {"at": "A"}}\n</tool_call><|im_end|>',
        ),
        ("lfm2_v2", "<|tool_call_start|>[rain(at='A')]<|tool_call_end|><|im_end|>"),
        (
            "glm4moe",
            (
                "\n<think></think>\n<tool_call>rain\n<arg_key>at</arg_key>\n"
                "<arg_value>A</arg_value>\n</tool_call><|observation|>"
            ),
        ),
    ],
)
def test_training_m2_a_call_is_learnt_and_its_result_is_not(
    name: str, call: str, load: Any
) -> None:
    first, second = labels(load(name), CALL)
    assert first == call
    assert "It is dry." in second


@pytest.mark.train
def test_training_m2_a_second_call_that_the_template_leaves_out_is_named(load: Any) -> None:
    both = assistant("", tool_calls=[*CALL[1]["tool_calls"], *CALL[1]["tool_calls"]])
    refused = load("gptoss").render(conversation([CALL[0], both, CALL[2], CALL[3]]))
    assert isinstance(refused, Note)
    assert (refused.code, refused.detail) == ("template_drops_text", "a call of a tool")


@pytest.mark.train
def test_training_m3_a_turn_whose_end_is_unknown_is_refused(load: Any) -> None:
    refused = load("diffusion_gemma").render(conversation(CALL))
    assert isinstance(refused, Note)
    assert (refused.code, refused.detail) == (
        "template_failed",
        "message 1 does not end with a special token",
    )


ROLES = ("user", "assistant", "user", "assistant")


def messages(*texts: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in zip(ROLES, texts, strict=False)]


def render(texts: list[str]) -> tuple[MarkedText, dict[int, tuple[int, int]]]:
    """Each message as `[text]`; a turn of the assistant includes the closing bracket."""
    marked = MarkedText()
    for number, text in enumerate(texts):
        start = len(marked.text) + 1
        marked.messages[number] = (start, start + len(text))
        marked.text += f"[{text}]"
    turns = {
        number: (start, end + 1) for number, (start, end) in marked.messages.items() if number % 2
    }
    return marked, turns


def learnt_layout() -> TemplateLayout:
    texts = ["Text 0", "Text 1"]
    layout = learn_layout(messages(*texts), *render(texts))
    assert layout is not None
    return layout


@pytest.mark.parametrize("texts", [["Hi", "Yo"], ["", ""], ["[", "]]"], ["\U0001f600é", " \n"]])
def test_turns_follow_from_the_lengths_of_the_messages(texts: list[str]) -> None:
    marked, turns = render(texts)
    assert learnt_layout().turns(messages(*texts), marked.text) == turns


@pytest.mark.parametrize("text", ["[Hi][yo]", "[Hi][Yo] ", "", "[Hi]\n[Yo]"])
def test_a_text_of_another_layout_has_no_turns(text: str) -> None:
    assert learnt_layout().turns(messages("Hi", "Yo"), text) is None


def test_a_template_that_changes_or_leaves_out_a_message_has_no_layout() -> None:
    marked, turns = render(["HI", "Yo"])
    assert learn_layout(messages("Hi", "Yo"), marked, turns) is None
    marked, turns = render(["Hi"])
    assert learn_layout(messages("Hi", "Yo"), marked, turns) is None


def test_a_template_that_reverses_the_messages_has_no_layout() -> None:
    reversed_order = MarkedText("YoHi", {0: (2, 4), 1: (0, 2)})
    assert learn_layout(messages("Hi", "Yo"), reversed_order, {1: (0, 2)}) is None


def test_only_plain_messages_without_tools_have_roles_that_determine_the_layout() -> None:
    plain = messages("Hi", "Yo")
    assert roles_of(Conversation(plain, [False, True])) == ("user", "assistant")
    assert roles_of(Conversation(plain, [False, True], tools=[])) is None
    named = [{**plain[0], "name": "Ann"}, plain[1]]
    assert roles_of(Conversation(named, [False, True])) is None
    assert roles_of(Conversation([], [])) == ()


def test_a_sample_has_its_roles_and_a_distinct_text_in_each_message() -> None:
    sample = sample_conversation(ROLES)
    assert roles_of(sample) == ROLES
    assert len({message["content"] for message in sample.messages}) == len(ROLES)
    assert sample.trained == [False, True, False, True]
