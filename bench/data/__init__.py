"""Stages of the data pipeline, each beside what people use: `python -m bench.data`."""
