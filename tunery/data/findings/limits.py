"""Every bound on what a tenant's file may make us do."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

SNIFF_BYTES: Final = 64 * KIB  # what tells the format
BLOCK_BYTES: Final = 64 * KIB  # lines that are looked at together
ROW_BYTES_MAX: Final = 8 * MIB  # a million tokens fit; a 100 MB row does not
ROWS_MAX: Final = 20_000_000
SPREAD_LINES_MAX: Final = 2_000  # of one pretty-printed object
UNPACKED_BYTES_MAX: Final = 64 * 1024 * MIB  # of a compressed file
UNPACKED_FREE_BYTES: Final = 64 * MIB  # up to here any ratio is fine
UNPACKED_RATIO_MAX: Final = 200  # text with repeats packs 50 : 1, a bomb 1,000 : 1
COLUMNAR_ROWS: Final = 256  # of Parquet and Arrow, made into objects together
COLUMNAR_READ_ROWS: Final = 4_096  # of Parquet, read together
COLUMNAR_BATCH_BYTES: Final = 256 * MIB  # or so many bytes, by what a row may become
COLUMNAR_GROUP_BYTES_MAX: Final = 4 * 1024 * MIB  # one row group of Parquet, unpacked
FOLDER_FILES_MAX: Final = 10_000
NESTING_MAX: Final = 64  # tool schemas need about ten
LISTED_PER_CODE_MAX: Final = 1_000  # counts stay exact beyond
EXCERPT_CHARS_MAX: Final = 80
COLUMNS_MAX: Final = 1_000
COLUMNS_NAMED_MAX: Final = 8  # in messages
DIALECT_ROWS: Final = 20  # the first rows decide the dialect
ROWS_MIN: Final = 10  # of a training file; OpenAI's own minimum

TEMPLATE_CHARS_MAX: Final = 4 * ROW_BYTES_MAX  # rendered text of one row
TEMPLATE_MS_MAX: Final = 10_000  # one render
ENCODE_ROWS: Final = 128  # rows tokenised in one call
ENCODE_CHARS: Final = 4 * MIB  # or as many characters, whichever comes first
PIECE_ROWS: Final = 10_000  # tokenised into one file: what a killed run may lose
PIECE_CHARS: Final = 32 * MIB  # or as many characters, whichever comes first
PACK_WINDOW_ROWS: Final = 20_000  # sequences packed together: 0.03 % of fill for bounded memory
PACK_WINDOW_TOKENS: Final = 8 * MIB  # or as many tokens, whichever comes first
PROGRESS_ROWS: Final = 256
