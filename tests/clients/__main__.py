"""`python -m tests.clients`: makes each program's environment, then runs those that there are.

Prints a line for each program that is skipped, and for what of one is left out. Exit status: that
of the tests, or 1 when there is no program at all.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.programs import (
    ASKING,
    HERE,
    LEFT_OUT,
    LLAMA_CPP,
    LM_EVAL,
    MIRRORS,
    MLFLOW,
    TENSORBOARD,
    TOOLS,
    NoClient,
    command_of,
)
from tests.e2e.stories import TINY

TRAINS = "test_first_hour_s02_a_client_trains_a_model_unchanged[{}]"
RUNS = "test_first_hour_13_the_page_on_adapters_runs_and_llama_cpp_gives_the_same_answer"
SCORES = "test_the_scorer_gives_the_likelihoods_of_lm_evaluation_harness"
REGISTERS = "test_a_registered_version_is_read_back_by_mlflow_and_is_as_it_was_signed"
TASKS = "test_imported_benchmarks_have_texts_and_scores_of_lm_evaluation_harness"
SHOWS = "test_a_mirrored_job_is_read_by_the_program_itself[{}]"
ASKS = "test_review2_u4_a_framework_forces_and_types_calls_by_its_defaults[{}]"
OTHERS = {
    LLAMA_CPP: (RUNS,),
    LM_EVAL: (SCORES, TASKS),
    MLFLOW: (REGISTERS,),
    TENSORBOARD: (),
    **{
        program: tuple(ASKS.format(f"{base}-{program}") for base in (TOOLS, TINY))
        for program in ASKING
    },
}


def main() -> int:
    """Run the tests of the programs that can be had here."""
    tests, available = list[str](), set[str]()
    for program in (*LEFT_OUT, *OTHERS):
        try:
            with tempfile.TemporaryDirectory() as folder:
                command_of(program, Path(folder))
        except NoClient as error:
            print(f"clients: {program} is skipped: {error}", flush=True)
            continue
        available.add(program)
        tests += OTHERS.get(program, (TRAINS.format(program),))
        if program in MIRRORS:
            tests.append(SHOWS.format(program))
        if left_out := LEFT_OUT.get(program):
            print(f"clients: {program} runs without {left_out}", flush=True)
    if not tests:
        return 1
    chosen = [f"{HERE / 'test_clients.py'}::{test}" for test in tests]
    if available.issuperset(MIRRORS):
        chosen.append(str(HERE / "test_integrations.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
