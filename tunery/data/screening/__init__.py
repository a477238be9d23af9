"""What training rows should not contain, and what happens to rows that do.

word_ngrams       texts to words, and runs of n words to 64-bit hashes
contamination     rows that contain items of a benchmark
benchmarks        the benchmarks that an operator has added
operator_models   models an operator brings to recognise names and to rate toxicity
presidio          names of people and places, recognised by Microsoft Presidio
screening         `ScreeningPolicy` and `Screening`: all of these, applied to the rows of a file
"""
