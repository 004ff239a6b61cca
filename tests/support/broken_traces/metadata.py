"""Good traces whose metadata is not."""

from pathlib import Path

from .kinds import GOOD_ROW, HEADER, broken, written
from .parquet import straggler


def with_meta(name: str, text: str, match: str) -> None:
    """A kind whose trace is good and whose metadata is not."""

    def make(folder: Path) -> Path:
        (folder / "meta-X.yaml").write_text(text, encoding="utf-8")
        return straggler(folder / "trace-X.parquet")

    broken(name, match)(make)


with_meta("meta with a wrong world size", "dp: 2\nworld_size: 9\n", r"meta-X\.yaml:2:1 world_size: 9, but dp 2 .* = 2")
with_meta("meta with a degree of 0", "trial_name: X\ndp_size: 0\n", r"meta-X\.yaml:2:1 dp_size: 0, but .* from 1")
with_meta("meta with a fraction", "dp: 2.5\n", r"meta-X\.yaml:1:1 dp: 2\.5, but it must be a whole number")
with_meta("meta with true for a degree", "dp: true\n", r"meta-X\.yaml:1:1 dp: True, but it must be a whole number")
with_meta(
    "meta with a huge degree", f"dp: {10**30}\n", r"meta-X\.yaml:1:5 dp: '10+' is a whole number of more than 64 bits"
)
with_meta(
    "meta with an unknown field", "dp_sise: 2\n", r"meta-X\.yaml:1:1 dp_sise: unknown field, did you mean dp_size"
)
with_meta("meta with a field twice", "dp: 2\ndp_size: 2\n", r"meta-X\.yaml:2:1 dp_size: means the same as dp")
with_meta("meta that is not YAML", "dp: [2\n", r"meta-X\.yaml:2:1: not valid YAML")
with_meta("meta that is a list", "- 2\n", r"meta-X\.yaml: metadata is a list of fields")
with_meta("meta that is empty", "", r"meta-X\.yaml: metadata is a list of fields")
with_meta("meta of a megabyte", "# x\n" * 2**18, r"meta-X\.yaml: larger than 64 KiB")
with_meta("meta with fewer replicas than the trace", "dp: 1\n", r"row 2 dp: 1, but the job has dp 1")
with_meta("meta with more stages than the trace", "dp: 2\npp: 2\n", r"nothing was recorded on dp rank 0, stage 1")
with_meta("meta with a million workers", "dp: 1000000\npp: 1000000\n", r"6 rows, but pp 1000000")


@broken("two metas that could be meant", r"ops\.csv: which metadata is meant, meta-A\.yaml, meta-B\.yaml\? .*--meta")
def _(folder: Path) -> Path:
    for name in ("meta-A.yaml", "meta-B.yaml"):
        (folder / name).write_text("dp: 1\n", encoding="utf-8")
    return written(folder / "ops.csv", f"{HEADER}\n{GOOD_ROW}".encode())
