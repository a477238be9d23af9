"""Rows: reading, checking, rendering to tokens, splitting, packing. Files in, files out.

    codes        the catalogue: what each finding means and what to do about it
    limits       every bound on tenant input, by name
    findings     one finding, and the collector that counts all and lists some
    rows, lines  rows as they were read; physical lines
    reading      a file told by its content, row by row, in bounded memory
    compressed, spreading, arrays, delimited, columnar    the containers rows come in
    parsing      bytes of one row to a value, or the reason why not
    dialects     which shape rows have: chat, ShareGPT, prompt / completion, Alpaca, text, DPO, KTO
    chat, tools, pairs, preferences, texts    the rules of one row of each shape
    quick        the same answer for faultless chat rows, many at a time
    quality      what the rows are like together
    checking     `check`: every bad row of a file, and its tokens
    measuring    tokens of checked rows
    report       what `check` answers
    showing, page    a report for a terminal, for a browser
    templates    a base model's chat template in a sandbox
    marking, forms    where each message ends up in a rendered text
    rendering    `Tokenizer`: conversations to token ids and loss masks
    personal     personal data and secrets, by shape
    wordgrams, contamination, benchmarks    items of benchmarks in rows
    duplicates   equal rows, by hash of normalised text
    signatures, clusters    rows that are nearly equal
    screening    all of these, by policy
    splitting    validation rows drawn by seed, like rows never apart
    pieces       rows tokenised into files from which a killed run goes on
    packing      sequences into rows of max_length
    shards       packed rows as safetensors files
    versions     what changed between two files
    preparing    `prepare`: a file to the shards a training run reads

No torch, no network; the same bytes in give the same bytes out.
"""
