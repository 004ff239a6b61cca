"""Broken tables of ops in CSV."""

from __future__ import annotations

from .kinds import GOOD_ROW, HEADER, broken, bytes_file, csv_file, written

csv_file("CSV with a repeated column", f"{HEADER},step\n", ":1: the column 'step' is there twice")
csv_file("CSV with an unknown column", "step,op_type,start_s,duration\n", ":1 'duration': .*did you mean duration_s")
csv_file("CSV with a missing column", "step,op_type,start_s\n", ":1: the column duration_s is missing")
csv_file("CSV without rows", HEADER + "\n", ": no recorded ops")
csv_file("CSV with semicolons", HEADER.replace(",", ";") + "\n", ":1: columns must be separated by commas")
csv_file("CSV with a short row", f"{HEADER}\n{GOOD_ROW}1,0,0\n", ":3: 3 fields, but the first line names 6 columns")
csv_file("CSV with a long row", f"{HEADER}\n{GOOD_ROW[:-1]},9\n", ":2: 7 fields, but")
csv_file("CSV with a word for a number", f"{HEADER}\n{GOOD_ROW}one,0,0,a,0,1\n", ":3 step: 'one' is not a whole")
csv_file("CSV with a fraction for a rank", f"{HEADER}\n1,0.5,0,a,0,1\n", r":2 dp: '0\.5' is not a whole number")
csv_file("CSV with an empty time", f"{HEADER}\n1,0,0,a,,1\n", ":2 start_s: '' is not a number")
csv_file("CSV with a start that is NaN", f"{HEADER}\n1,0,0,a,nan,1\n", ":2 start_s: nan is not between")
csv_file("CSV with an absurd start", f"{HEADER}\n1,0,0,a,1e30,1\n", r":2 start_s: 1e\+30 is not between")
csv_file("CSV with a negative duration", f"{HEADER}\n1,0,0,a,0,-1\n", r":2 duration_s: -1\.0 is not between 0")
csv_file("CSV with a huge integer", f"{HEADER}\n{'9' * 5000},0,0,a,0,1\n", ":2 step: '999.{1,60}99' is not a whole")
csv_file("CSV with a step beyond 64 bits", f"{HEADER}\n{2**70},0,0,a,0,1\n", r":2 step: '\d+' is too large")
csv_file("CSV with a step beyond 53 bits", f"{HEADER}\n{2**60},0,0,a,0,1\n", r":2 step: \d+ is not between")
csv_file("CSV with a rank beyond any job", f"{HEADER}\n1,9999999,0,a,0,1\n", ":2 dp: 9999999 is not between")
csv_file("CSV with an op without a name", f"{HEADER}\n1,0,0,,0,1\n", ":2 op_type: is empty")
csv_file("CSV with a quote that never ends", f'{HEADER}\n1,0,0,"a,0,1\n', r":\d+: not CSV")
csv_file("CSV with a NUL in a field", f"{HEADER}\n" + GOOD_ROW * 200 + "1,0,0,a,0,\0\n", r":202 duration_s: '\\x00'")
csv_file("CSV that is empty", "", ": the file is empty")
csv_file("CSV of blank lines", "\n\n  \n", ": the file is empty")
bytes_file("CSV that is not UTF-8", "ops.csv", f"{HEADER}\n1,0,0,caf".encode() + b"\xe9,0,1\n", ":2: not UTF-8")
bytes_file("CSV in UTF-16", "ops.csv", HEADER.encode("utf-16"), ": UTF-16 text")
broken("CSV with a line of 50 MB", r"ops\.csv:2: a line of more than 1,048,576 bytes")(
    lambda folder: written(folder / "ops.csv", HEADER.encode() + b"\n" + b"1" * 50_000_000)
)
