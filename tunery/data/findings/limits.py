"""Every limit on the input of a tenant, and the sizes in which it is processed."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

SNIFF_BYTES: Final = 64 * KIB  # read to recognise the format
BLOCK_BYTES: Final = 64 * KIB  # lines that are checked together
ROW_BYTES_MAX: Final = 8 * MIB  # a million tokens fit; a 100 MB row does not
ROWS_MAX: Final = 20_000_000
OBJECT_LINES_MAX: Final = 2_000  # of one pretty-printed object
UNPACKED_BYTES_MAX: Final = 64 * 1024 * MIB  # of a compressed file
UNPACKED_FREE_BYTES: Final = 64 * MIB  # below this size any compression ratio is accepted
UNPACKED_RATIO_MAX: Final = 200  # repetitive text compresses 50 : 1, a bomb 1,000 : 1
COLUMNAR_ROWS: Final = 256  # of Parquet and Arrow, converted to objects together
COLUMNAR_READ_ROWS: Final = 4_096  # of Parquet, read together
COLUMNAR_BATCH_BYTES: Final = 256 * MIB  # or this many bytes, estimated from the largest row
COLUMNAR_GROUP_BYTES_MAX: Final = 4 * 1024 * MIB  # one row group of Parquet, unpacked
FOLDER_FILES_MAX: Final = 10_000
NESTING_MAX: Final = 64  # tool schemas need about ten
LISTED_PER_CODE_MAX: Final = 1_000  # counts stay exact beyond
EXCERPT_CHARS_MAX: Final = 80
EXCERPT_CHARS_SCANNED: Final = 4 * EXCERPT_CHARS_MAX  # masked before the cut: masks are shorter
EXCERPT_CHARS_READ_MAX: Final = 6_000  # until the end of a value; a web token may have 5,200
COLUMNS_MAX: Final = 1_000
COLUMNS_NAMED_MAX: Final = 8  # in messages
DIALECT_ROWS: Final = 20  # the first rows decide the dialect
ROWS_MIN: Final = 10  # of a training file; OpenAI's own minimum

TEMPLATE_CHARS_MAX: Final = 4 * ROW_BYTES_MAX  # rendered text of one row
TEMPLATE_MS_MAX: Final = 10_000  # one render
ENCODE_ROWS: Final = 128  # rows tokenised in one call
ENCODE_CHARS: Final = 4 * MIB  # or this many characters, whichever comes first
CHUNK_ROWS: Final = 10_000  # tokenised into one file: the work that a crash can lose
CHUNK_CHARS: Final = 32 * MIB  # or this many characters, whichever comes first
PACK_WINDOW_ROWS: Final = 20_000  # sequences packed together: bounds memory, costs 0.03 % of fill
PACK_WINDOW_TOKENS: Final = 8 * MIB  # or this many tokens, whichever comes first
PROGRESS_ROWS: Final = 256  # between two reports of progress
