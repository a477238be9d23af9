"""The names of the tests of each program."""

from collections.abc import Mapping
from typing import Final

from tests.clients.programs import (
    ASKING,
    LLAMA_CPP,
    LM_EVAL,
    MLFLOW,
    OPENAI,
    PYDANTIC_AI,
    TENSORBOARD,
    TOOLS,
)
from tests.e2e.stories import TINY

TRAINS: Final = "test_first_hour_s02_a_client_trains_a_model_unchanged[{}]"
RUNS: Final = "test_first_hour_13_the_page_on_adapters_runs_and_llama_cpp_gives_the_same_answer"
SCORES: Final = "test_the_scorer_gives_the_likelihoods_of_lm_evaluation_harness"
REGISTERS: Final = "test_a_registered_version_is_read_back_by_mlflow_and_is_as_it_was_signed"
TASKS: Final = "test_imported_benchmarks_have_texts_and_scores_of_lm_evaluation_harness"
SHOWS: Final = "test_a_mirrored_job_is_read_by_the_program_itself[{}]"
ASKS: Final = "test_first_hour2_u4_a_framework_forces_and_types_calls_by_its_defaults[{}]"
ON_PAGE_RUNS: Final = "test_review2_44_the_page_runs_in_each_program_as_it_is_written[{}]"
NEWEST_TINKER: Final = "test_the_newest_tinker_sdk_runs_the_loop_of_the_page"
OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    LLAMA_CPP: (RUNS,),
    LM_EVAL: (SCORES, TASKS),
    MLFLOW: (REGISTERS,),
    **dict.fromkeys((OPENAI, PYDANTIC_AI, TENSORBOARD), ()),
    **{
        program: tuple(ASKS.format(f"{base}-{program}") for base in (TOOLS, TINY))
        for program in ASKING
    },
}
