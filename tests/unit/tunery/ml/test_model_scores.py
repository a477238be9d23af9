"""Scores of models: each question is asked once, and what was said outlives the process."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.score_models import Reply, judging, likes, relayed, said
from tests.unit.tunery.graders.test_grader import CHECK
from tunery.graders.grader import parse
from tunery.graders.grading import PARSE_ERROR, grade
from tunery.ml.model_scores import FILE, ModelScores
from tunery.platform.local_socket import listen_at
from tunery.work.exits import WorkError

JUDGE: dict[str, Any] = {
    "type": "score_model",
    "name": "judge",
    "model": "judge-1",
    "input": [{"role": "user", "content": "{{item.word}}\n{{sample.output_text}}"}],
}
BOTH = {
    "type": "multi",
    "name": "both",
    "graders": {"judge": JUDGE, "other": {**JUDGE, "model": "judge-2"}, "check": CHECK},
    "calculate_output": "judge + 2 * other",
}
ITEM = {"word": "w", "answer": "a"}


def rewards(scores: ModelScores, grader: dict[str, Any], *texts: str) -> list[float]:
    parsed = parse(grader)
    scores.learn(parsed, [(ITEM, text) for text in texts])
    return [grade(parsed, ITEM, text, scores.look_up).reward for text in texts]


def test_answers_are_graded_by_a_model_and_equal_ones_are_asked_for_once(tmp_path: Path) -> None:
    with judging(likes("e")) as judge, relayed(judge.endpoint(), BOTH, tmp_path) as path:
        scores = ModelScores(path, 9)
        assert rewards(scores, BOTH, "ee", "xe", "ee") == [3.0, 1.5, 3.0]
        assert sorted(body["model"] for body in judge.asked) == 2 * ["judge-1"] + 2 * ["judge-2"]
        assert set(judge.texts) == {"w\nee", "w\nxe"}
        assert rewards(scores, BOTH, "xe") == [1.5]
        assert len(judge.asked) == 4


def test_many_answers_are_asked_for_in_parts(tmp_path: Path) -> None:
    with judging(likes("e")) as judge, relayed(judge.endpoint(), JUDGE, tmp_path) as path:
        texts = [f"{'e' * number}xx" for number in range(40)]
        values = rewards(ModelScores(path, 40), JUDGE, *texts)
    assert values == [pytest.approx(number / (number + 2)) for number in range(40)]


def test_what_was_said_is_in_a_checkpoint_and_is_not_asked_again(tmp_path: Path) -> None:
    with judging(likes("e")) as judge, relayed(judge.endpoint(), JUDGE, tmp_path) as path:
        scores = ModelScores(path, 9)
        rewards(scores, JUDGE, "e", "xe")
        (content,) = scores.files().values()
        (tmp_path / FILE).write_text(content)
        rewards(scores, JUDGE, "xxxe")
        judge.reply = likes("x")
        resumed = ModelScores(path, 9)
        rewards(resumed, JUDGE, "tried")
        resumed.load(tmp_path)
        assert rewards(resumed, JUDGE, "xe", "e") == [0.5, 1.0], "the model says something else now"
        assert rewards(resumed, JUDGE, "xxxe") == [0.75], "and that counts where nothing is kept"
        assert resumed.files() != scores.files()
        resumed.load(tmp_path)
        assert resumed.files() == {FILE: content}, "what was tried is no part of it"
        resumed.forget()
        assert resumed.files() == {FILE: "{}\n"}


def test_a_job_asks_no_more_questions_than_it_may(tmp_path: Path) -> None:
    with judging(likes("e")) as judge, relayed(judge.endpoint(), JUDGE, tmp_path) as path:
        scores = ModelScores(path, 2)
        rewards(scores, JUDGE, "a", "b", "a")
        with pytest.raises(WorkError, match="more than 2 questions") as refused:
            rewards(scores, JUDGE, "c")
        assert refused.value.cause == "user"
        assert len(judge.asked) == 2


def test_a_model_that_gives_no_number_is_worth_nothing_and_not_asked_again(tmp_path: Path) -> None:
    replies: list[Reply] = [said("no idea"), said("", refusal="no")]
    with (
        judging(lambda text: replies[text.endswith("b")]) as judge,
        relayed(judge.endpoint(), JUDGE, tmp_path) as path,
    ):
        scores = ModelScores(path, 9)
        assert rewards(scores, JUDGE, "a", "b") == [0.0, 0.0]
        assert [*grade(parse(JUDGE), ITEM, "a", scores.look_up).errors] == [PARSE_ERROR]
        assert rewards(scores, JUDGE, "a", "b") == [0.0, 0.0]
        assert len(judge.asked) == 2


@pytest.mark.parametrize(
    ("status", "cause"), [(503, "platform"), (401, "bad_node"), (404, "user"), (400, "user")]
)
def test_an_endpoint_that_gives_no_scores_ends_the_process_with_its_cause(
    tmp_path: Path, status: int, cause: str
) -> None:
    with (
        judging(lambda _: (status, {})) as judge,
        relayed(judge.endpoint(), JUDGE, tmp_path) as path,
        pytest.raises(WorkError, match=f"the endpoint answered {status}") as refused,
    ):
        rewards(ModelScores(path, 9), JUDGE, "a", "b", "c")
    assert refused.value.cause == cause


def test_a_process_whose_agent_is_gone_ends(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError, match="the agent is gone"):
        rewards(ModelScores(tmp_path / "none", 9), JUDGE, "a")

    def hang_up(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.recv(1 << 16)
        connection.close()

    with listen_at(tmp_path / "s") as listening:
        thread = threading.Thread(target=hang_up, args=(listening,))
        thread.start()
        with pytest.raises(BrokenPipeError, match="the agent closed"):
            rewards(ModelScores(tmp_path / "s", 9), JUDGE, "a")
        thread.join()
