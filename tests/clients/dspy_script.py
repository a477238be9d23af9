"""DSPy's `BootstrapFinetune`, then a question to its model: `dspy_script.py ROWS` prints JSON.

A stand-in answers for the teacher, so that the rows come from its answers.
"""

import json
import os
import sys
from pathlib import Path

import dspy
from dspy.utils import DummyLM

EXAMPLES_MAX = 40


def main(rows: Path) -> dict[str, str]:
    chats = [json.loads(line)["messages"] for line in rows.read_text().splitlines()]
    examples = [
        dspy.Example(question=chat[-2]["content"], answer=chat[-1]["content"]).with_inputs(
            "question"
        )
        for chat in chats[:EXAMPLES_MAX]
    ]
    student = dspy.Predict("question -> answer")
    student.set_lm(dspy.LM(f"openai/{os.environ['TUNERY_MODEL']}"))
    teacher = dspy.Predict("question -> answer")
    teacher.set_lm(DummyLM([{"answer": example.answer} for example in examples]))
    optimizer = dspy.BootstrapFinetune(train_kwargs={"n_epochs": 1}, num_threads=1)
    tuned = optimizer.compile(student, trainset=examples, teacher=teacher)
    (answer,) = tuned.lm("Who are you?", temperature=0, max_tokens=8)
    return {"model": tuned.lm.model.removeprefix("openai/"), "answer": answer}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
