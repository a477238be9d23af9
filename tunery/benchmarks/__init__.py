"""Benchmarks that the gate asks beside its bundled questions: files of items, known by their hash.

task          the file: a header and one item a line; reading, writing, samples of it
answers       what a written answer is worth: the number it ends with
refusals      whether an answer refuses, by its words
guard         what a guard model is asked about an answer, and what it says
"""
