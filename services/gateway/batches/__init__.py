"""Batches: files of questions that are answered at low priority."""
