"""Did anything change? Predictions of 500 jobs and 5 searches at one revision, compared with those of another.

    python -m benchmarks.reference record --checkout DIR --out FILE.json [--limit N] [--shared DIR]
    python -m benchmarks.reference compare OLD.json NEW.json [--tolerance 1e-6] [--common]

`record` imports prism_jax from DIR and writes, for every job, the noise-free step, p50 and p95 of the step time (one
key, symmetric method), peak memory and whether it fits; for every search the best plan and its p95. A job that is
refused is written with the type of its error. Jobs: all shipped examples, a grid of job documents that turns every knob
(below), and rows of every source of the measured step tables in the shared data, which are read where they are. An
interrupted run goes on where it stopped (FILE.json.partial). `compare` lists every quantity that differs, and ends with
1 if one does that is not in `compare.INTENDED`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .compare import compare
from .jobs import SEARCHES, grid

# What is used of a checkout, and where: the first place that exists counts. Add the new one when something moves.
NAMES = {
    "load_job": ("prism_jax:load_job",),
    "predict": ("prism_jax:predict",),
    "memory": (
        "prism_jax.cost.memory:memory",
        "prism_jax.memory.breakdown:memory",
    ),  # of (model, cluster, plan): total_bytes and fits of the worst stage
    "read_step_rows": (
        "prism_jax.io.steps_table:read_step_rows",
        "experiments.step_tables.table:read_step_rows",
        "prism_jax.io.tables.steps.table:read_step_rows",
    ),  # of a path
    "job_of_row": ("prism_jax.validation.costed:job_of_row", "prism_jax.validation:job_of_row"),
    "default_space": ("prism_jax.search.space:default_space", "prism_jax.search:default_space"),
    "search": ("prism_jax.search.exhaustive:search", "prism_jax.search:search"),
    "local_search": (
        "prism_jax.search.local_search:local_search",
        "prism_jax.search.gradient_search:gradient_search",
        "prism_jax.search:gradient_search",
    ),
}
N_SAMPLES = 256
SEED = 0
TABLES = ("reference_rows.json", "steps.csv.gz")  # of shared/data/steps
ROWS_PER_SOURCE = 18
SAY_EVERY = 25  # jobs
MAX_NAME = 60  # characters of a source or row in an id

Document = dict[str, Any]
Values = dict[str, Any]


# --- what is asked of a checkout ---


class Checkout:
    """prism_jax of one checkout; attributes are the names of `NAMES`.

    Raises:
        SystemExit: prism_jax would come from elsewhere, or a name is in none of its places.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        sys.path.insert(0, str(self.folder))
        found = import_module("prism_jax").__file__ or ""
        if not Path(found).resolve().is_relative_to(self.folder):
            raise SystemExit(f"prism_jax would be imported from {found}, not from {self.folder}")
        for name, places in NAMES.items():
            setattr(self, name, _first(name, places))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not in NAMES")

    @property
    def revision(self) -> str:
        """As git describes it; empty outside of a repository."""
        words = ["git", "-C", str(self.folder), "describe", "--always", "--dirty", "--abbrev=10"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    def load(self, text: Document | str) -> Any:
        """Job of a document, or of the example of that name."""
        if isinstance(text, str):
            return self.load_job(self.folder / "examples" / f"{text}.yaml")
        import yaml

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.yaml"
            file.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
            return self.load_job(file)


def _first(name: str, places: tuple[str, ...]) -> Any:
    """The object at the first place that exists."""
    missing: list[str] = []
    for place in places:
        module, _, attribute = place.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError) as error:
            missing.append(f"{place} ({error})")
    raise SystemExit(f"{name} is not where NAMES says: {'; '.join(missing)}")


@dataclass(frozen=True)
class Item:
    """A job or search: which section of the file it is in, and what gives its values."""

    section: str
    id: str
    values: Callable[[], Values]


def items(checkout: Checkout, shared: Path) -> list[Item]:
    """All jobs and searches, in the order in which they run.

    Raises:
        SystemExit: two have the same id.
    """
    files = sorted((checkout.folder / "examples").glob("*.yaml"))
    written = [*((f"examples/{file.stem}", file.stem) for file in files), *grid()]
    found = [Item("jobs", id, lambda text=text: predicted(checkout, checkout.load(text))) for id, text in written]
    for name in TABLES:
        for id, row in chosen_rows(checkout, shared / "data" / "steps" / name):
            found.append(Item("jobs", id, lambda row=row: predicted(checkout, checkout.job_of_row(row))))
    found += [Item("searches", f"searches/{name}", lambda name=name: searched(checkout, name)) for name in SEARCHES]
    if len({item.id for item in found}) < len(found):
        raise SystemExit("two jobs have the same id")
    return found


def chosen_rows(checkout: Checkout, table: Path) -> Iterator[tuple[str, Any]]:
    """Ids and rows: the rows of every source in `ROWS_PER_SOURCE` strips, and of each the first that is supported.

    Notes:
        Strips count all rows, so that a row which a revision comes to support, or to refuse, does not move the choice
        elsewhere.
    """
    by_source: dict[str, list[Any]] = defaultdict(list)
    for row in checkout.read_step_rows(table):
        by_source[row.source].append(row)
    for source, rows in by_source.items():
        n_strip = min(len(rows), ROWS_PER_SOURCE)
        for k in range(n_strip):
            strip = rows[k * len(rows) // n_strip : (k + 1) * len(rows) // n_strip]
            row = next((row for row in strip if not row.unsupported), None)
            if row is not None:
                yield f"rows/{table.name.partition('.')[0]}/{_slug(source)}/{_slug(row.id)}", row


def _slug(text: str) -> str:
    return re.sub(r"[^\w.=+]+", "-", text)[:MAX_NAME].strip("-")


def predicted(checkout: Checkout, job: Any) -> Values:
    """Step time in seconds and peak memory in bytes."""
    import jax

    found = checkout.predict(job, key=jax.random.key(SEED), n_samples=N_SAMPLES, pad=True)
    needed = getattr(job, "memory", None)  # under its framework, in revisions that tell frameworks apart
    needed = checkout.memory(job.model, job.cluster, job.plan) if needed is None else needed
    return {
        "noise_free_s": float(found.deterministic_s),
        "p50_s": float(found.quantile(0.5)),
        "p95_s": float(found.quantile(0.95)),
        "memory_bytes": float(needed.total_bytes),
        "fits": bool(needed.fits),
    }


def searched(checkout: Checkout, name: str) -> Values:
    """Best plan of a search, its p95 in seconds, and how many plans there were."""
    text, values, settings = SEARCHES[name]
    job = checkout.load(text)
    space = replace(checkout.default_space(job), **values)
    settings = {"objective": "p95", "seed": SEED, "top": 5, "method": "exhaustive"} | settings
    run = checkout.local_search if settings.pop("method") == "gradient" else checkout.search
    study = run(job, space, **settings)
    return {
        "p95_s": float(study.best.p95_s),
        "n_plans": int(study.screen.n_plans),
        "n_feasible": int(study.screen.n_feasible),
        "plan": asdict(study.best.plan),
    }


# --- record ---


def record(checkout: Path, out: Path, limit: int | None, shared: Path | None) -> None:
    """Writes `out`; `limit`: so many jobs and searches only, spread evenly over all."""
    started = time.perf_counter()
    shared = shared or checkout.resolve().parent / "shared"
    if not (shared / "data" / "steps").is_dir():
        raise SystemExit(f"no measured steps in {shared}. Say with --shared where the shared data is.")
    source = Checkout(checkout)
    wanted = thinned(items(source, shared), limit)
    partial = Partial(out.with_name(out.name + ".partial"), fingerprint(source.folder, shared))
    for done, item in enumerate(wanted, start=1):
        if item.id not in partial.found:
            partial.add(item.id, attempt(item))
        if done % SAY_EVERY == 0 or done == len(wanted):
            print(f"{done} of {len(wanted)}, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    whole: dict[str, Any] = {"about": about(source, partial.fingerprint), "jobs": {}, "searches": {}}
    for item in wanted:
        whole[item.section][item.id] = partial.found[item.id]
    write_atomically(out, json.dumps(whole, indent=1) + "\n")
    partial.file.unlink()
    refused = [item.id for item in wanted if "error" in partial.found[item.id]]
    print(
        f"{out}: {len(whole['jobs'])} jobs, {len(whole['searches'])} searches; refused: {', '.join(refused) or 'none'}"
    )


def attempt(item: Item) -> Values:
    """Values of an item, or the type of what it was refused with."""
    try:
        return json.loads(json.dumps(item.values()))  # as it will be read back
    except Exception as error:  # a fault of one job is a result like any other, and is compared
        print(f"{item.id}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return {"error": type(error).__name__}


def thinned(found: list[Item], limit: int | None) -> list[Item]:
    """At most `limit`, spread evenly, the last one among them."""
    if limit is None or limit >= len(found):
        return found
    return [found[(k + 1) * len(found) // limit - 1] for k in range(limit)]


def about(checkout: Checkout, print_: str) -> Document:
    """What the numbers may depend on."""
    import jax
    import numpy

    versions = {"python": platform.python_version(), "jax": jax.__version__, "numpy": numpy.__version__}
    where = {"machine": platform.machine(), "backend": jax.default_backend()}
    return {
        "revision": checkout.revision,
        "fingerprint": print_,
        "n_samples": N_SAMPLES,
        "seed": SEED,
        **versions,
        **where,
    }


def fingerprint(checkout: Path, shared: Path) -> str:
    """Of everything that an interrupted run must find unchanged: the code, the examples, the tables, this script."""
    files = [file for folder in ("prism_jax", "examples") for file in sorted((checkout / folder).rglob("*"))]
    files = [file for file in files if file.suffix in (".py", ".toml", ".json", ".yaml")]
    files += [shared / "data" / "steps" / name for name in TABLES] + [Path(__file__)]
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(checkout) if file.is_relative_to(checkout) else Path(file.name)
        digest.update(str(name).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


class Partial:
    """What an unfinished recording has found: JSON lines, first the fingerprint; one with another is begun anew."""

    def __init__(self, file: Path, fingerprint: str) -> None:
        self.file, self.fingerprint = file, fingerprint
        self.found: dict[str, Values] = {}
        lines = self._read()
        if lines and lines[0] == {"fingerprint": fingerprint}:
            self.found = {line["id"]: line["values"] for line in lines[1:]}
        kept = [{"fingerprint": fingerprint}, *({"id": id, "values": values} for id, values in self.found.items())]
        write_atomically(file, "".join(json.dumps(line) + "\n" for line in kept))

    def _read(self) -> list[Any]:
        """Whole lines; the last may have been cut off."""
        lines = []
        for line in self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []:
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return lines

    def add(self, id: str, values: Values) -> None:
        """Keeps one more."""
        self.found[id] = values
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"id": id, "values": values}) + "\n")


def write_atomically(file: Path, text: str) -> None:
    """The whole file or none of it."""
    new = file.with_name(file.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, file)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("record", help="predict all jobs with the prism_jax of a checkout")
    one.add_argument("--checkout", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--limit", type=int, help="so many jobs and searches only, spread evenly over all")
    one.add_argument("--shared", type=Path, help="folder of the shared data; ../shared of the checkout if not given")
    two = parts.add_parser("compare", help="list what differs between two recordings")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument("--tolerance", type=float, default=1e-6, help="relative")
    two.add_argument("--common", action="store_true", help="leave out what only one of the recordings has")
    given = parser.parse_args()
    if given.part == "compare":
        return compare(given.old, given.new, given.tolerance, given.common)
    record(given.checkout, given.out, given.limit, given.shared)
    return 0


if __name__ == "__main__":
    sys.exit(main())
