"""Measures the data pipeline stage by stage, and compares each stage with the usual tools.

    python -m bench.data [--json] [--quick] [STAGE…]

Times are CPU times of this process on one core, best of several rounds where a stage says so. With
--quick a tenth of the rows is used: the same keys, rougher figures.
"""

import argparse
import importlib
import json
import os
import sys
from typing import Final

STAGES: Final = ("validation", "neardup", "contamination", "tokenising", "packing")

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # before tokenizers is imported: one core
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> None:
    """Run the stages that are named on the command line, or all, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.stages) - set(STAGES):
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; use {', '.join(STAGES)}")
    results: dict[str, float] = {}
    for name in arguments.stages or STAGES:
        print(f"{name} …", file=sys.stderr)
        stage = importlib.import_module(f"bench.data.{name}")
        results |= {key: round(value, 4) for key, value in stage.run(arguments.quick).items()}
    if arguments.json:
        print(json.dumps(results))
        return
    for key, value in results.items():
        print(f"{key:36} {value:14,.4g}" if value < 1000 else f"{key:36} {value:14,.0f}")


if __name__ == "__main__":
    main()
