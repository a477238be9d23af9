"""Which rows are equal, nearly equal, or belong together.

minhash           MinHash signatures of character 5-grams, and the exact comparison
union_find        disjoint sets of row numbers
template_groups   exact comparison of many rows that were made from one template
clusters          clusters of near duplicates
duplicates        exact repeats and near repeats of conversations
splitting         the validation split: drawn by seed, never through a cluster
"""
