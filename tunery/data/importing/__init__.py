"""Imports published benchmarks, from files that the operator has, as benchmarks of the gate.

formats       `import_task`: MMLU, HellaSwag, ARC, TruthfulQA, GSM8K, XSTest, and own files
rows          rows of JSON lines, JSON, CSV and Parquet, as mappings
"""
