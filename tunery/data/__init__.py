"""Training data: read files, check rows, render them to tokens, split them and pack them.

    personal      personal data and secrets in a text, recognised by shape and check digits
    findings/     what a check reports: codes, findings, and the limits on tenant input
    dialects/     the shapes of a row (chat, prompt and completion, DPO, KTO …) and their rules
    containers/   the file formats that hold rows: JSON lines, JSON, CSV, Parquet, Arrow, compressed
    likeness/     duplicates and near duplicates, and the split that keeps similar rows together
    tokens/       chat template, tokenizer, length policy, packing and safetensors shards
    screening/    near duplicates, benchmark items, personal data and abuse, by policy
    importing/    published benchmarks as benchmarks of the gate
    reports/      the report of a check, and how a terminal and a browser show it
    checking      `check`: every bad row of a file in one pass, and the number of its tokens
    preparing     `prepare`: from a checked file to the shards that a training run reads
    mixing        how often an epoch sees the rows of each of several files
    versions      `diff`: what changed between two versions of a dataset

Nothing here needs torch or a network. The same bytes in give the same bytes out.
"""
