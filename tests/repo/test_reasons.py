"""No prose on the logs; every reason that is made has words, and the words their parameters."""

from pathlib import Path

from tests.repo.reasons import check_parameters, check_prose, unused_codes
from tests.repo.tree import Tree, Violation


def planted(root: Path, name: str, text: str) -> Tree:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return Tree(root)


def lines(violations: list[Violation]) -> list[int]:
    return [violation.line for violation in violations]


def test_no_message_has_a_field_for_prose(repository: Tree) -> None:
    assert [str(violation) for violation in check_prose(repository)] == []


def test_every_reason_has_words_with_all_their_parameters(repository: Tree) -> None:
    assert [str(violation) for violation in check_parameters(repository)] == []


def test_every_code_of_a_refusal_or_failure_is_used(repository: Tree) -> None:
    assert unused_codes(repository) == []


def test_fields_for_prose_are_found(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        "schemas/gone.py",
        "class FileGone(Message):\n"
        "    file_id: str\n"
        "    failure: str | None = None\n"
        "    reasons: tuple[str, ...] = ()\n"
        "    reason: Reason\n"
        "    detail: Sealed | None = None\n"
        "class Ending(Part):\n"
        "    advice: str\n"
        "class Book:\n"
        "    message: str\n",
    )
    assert lines(list(check_prose(tree))) == [3, 4, 8]


def test_log_lines_of_processes_are_left_alone(tmp_path: Path) -> None:
    tree = planted(tmp_path, "schemas/telemetry.py", "class LogLine(Message):\n    text: str\n")
    assert list(check_prose(tree)) == []


def test_missing_parameters_and_codes_without_words_are_found(tmp_path: Path) -> None:
    tree = planted(
        tmp_path,
        "services/x/domain.py",
        "from schemas.reasons import failing, refusing\n"
        'refusing("keys_at_most", limit=3)\n'
        'refusing("keys_at_most")\n'
        'refusing("no_such_code")\n'
        'refusing("keys_at_most", **params)\n'
        "refusing(code)\n"
        'failing("file_gone", job_id="j")\n',
    )
    assert lines(list(check_parameters(tree))) == [3, 4, 7]
    assert "keys_at_most" not in unused_codes(tree)
    assert "key_exists" in unused_codes(tree)
