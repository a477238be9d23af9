"""Measurements of the data pipeline, each stage compared with the usual tools.

synthetic_texts   texts for measurements, from a seed
validation        checking of chat rows
neardup           near duplicates
contamination     search for benchmark items
tokenising        rendering, tokenising and masking
packing           packing of sequences
scale             the whole pipeline on a million rows
"""
