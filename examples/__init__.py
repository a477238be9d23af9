"""Code to read and to run.

first_stream    the tutorial's stream: `python -m examples.first_stream`
"""
