"""The file formats that hold rows. Every reader works in bounded memory.

row                 one row, or a block of rows, as it was read
line_reader         the physical lines of a binary stream
compression         gzip and zstd
multiline_objects   JSON objects that are spread over several lines
json_array          the elements of one JSON array
delimited           CSV with a header
columnar            Parquet and Arrow, alone or in a folder that `datasets` saved
reading             `open_rows`: recognises the format from the first bytes and yields rows
"""
