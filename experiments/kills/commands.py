"""Every command that writes, with the options that make it write."""

from __future__ import annotations

from typing import NamedTuple


class Writes(NamedTuple):
    """A command.

    Attributes:
        name: for the table.
        line: what is typed after `prism-jax`.
        resumed: files that a killed run may leave on purpose, since the next one goes on from them.
        codes: exit codes that a run may have which nothing stops; 1: a fit of so few rows that it fails its checks on some
            machines, and is then written as `*.failed.npz`.
    """

    name: str
    line: str
    resumed: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)


def _fit(model: str, file: str, *options: str, codes: tuple[int, ...] = (0,)) -> Writes:
    line = " ".join(("fit", model, file, *options, "-o", f"{model}.npz", "--plot", f"{model}.png"))
    return Writes(" ".join(("fit", model, *options)), line, (f"{model}.npz.partial",), codes)


COMMANDS = (
    Writes("init", "init -o new.yaml --force"),
    Writes("predict", "predict job.yaml --plot step.png --trace step.json.gz"),
    Writes("run", "run job.yaml --steps 1000 --mtbf 3h --worlds 500 --plot run.png"),
    Writes("capture", "capture job.yaml -o job.capture.gz"),
    Writes("cloud", "cloud job.yaml --steps 1000 --regions us-east-1 --most-gpus 8 --worlds 500 --plot money.png"),
    Writes(
        "search",
        "search job.yaml --space space.yaml --resume search.npz -o best.yaml --save-dir best --plot front.png",
        ("search.npz",),
    ),
    Writes(
        "sweep",
        "sweep job.yaml --set plan.micro_batch=1,2 --samples 64 --resume study.npz --csv table.csv --plot sweep.png",
        ("study.npz",),
    ),
    Writes(
        "capacity",
        "capacity job.yaml --fleet 8xh100-sxm --tokens 1B --deadline 30d -o planned.yaml --save-dir planned --plot plan.png",
        (),
    ),
    Writes("scale", "scale job.yaml --gpus 8,16 --samples 64 --resume study.npz --plot scale.png", ("study.npz",)),
    Writes("compare", "compare job.yaml placed.yaml --samples 64 --plot jobs.png"),
    Writes("shard", "shard dlrm_dcnv2_64 -o sharded.yaml --plot shard.png"),
    Writes(
        "place",
        "place placed.yaml --slowdowns nodes.csv --plot place.svg --hostfile hosts --rankfile ranks --save-dir placed",
    ),
    Writes("calibrate", "calibrate runs.csv -o calibration.npz --plot site.png"),
    Writes("validate steps", "validate steps runs.csv --plot accuracy.png"),
    Writes("validate file", "validate file train.log --device h100-sxm -o read.yaml", codes=(0, 1)),
    Writes("validate file, a table", "validate file runs.csv --plot accuracy.png"),
    Writes("trace predict", "trace predict local_cluster --draws 500 --plot steps.pdf"),
    Writes("trace what-if", "trace what-if local_cluster --plot workers.png"),
    Writes("trace export", "trace export local_cluster --perfetto steps.json.gz"),
    Writes("trace kernels", "trace kernels profiles --plot kernels.png"),
    Writes("trace compare", "trace compare log.csv log.csv --plot ratio.png"),
    Writes("import", "import train.sh --device h100-sxm -o imported.yaml"),
    Writes("slowdowns", "slowdowns stragglers.log -o gpus.csv"),
    Writes("export", "export job.yaml --to megatron --save-dir . --force"),
    Writes("measure", "measure --save-dir . --force"),
    Writes("watch", "watch log.csv --plot phases.png"),
    _fit("fleet", "times.csv"),
    _fit("fleet", "times.csv", "--method", "map"),
    _fit("steps", "steps.csv"),
    _fit("collectives", "all_reduce.log", "--method", "map", codes=(0, 1)),
    _fit("kernels", "gemm.csv"),
    _fit("overlap", "overlap.csv", "--method", "map", codes=(0, 1)),
    _fit("failures", "failures.csv"),
    _fit("repairs", "repairs.csv", "--method", "map", codes=(0, 1)),
    _fit("revocation", "spells.csv", "--method", "map", codes=(0, 1)),
    _fit("ladder", "ladder.csv"),
    _fit("startup", "startup.csv"),
    _fit("saves", "saves.csv"),
    _fit("lengths", "lengths.csv", codes=(0, 1)),
    _fit("routing", "routing.csv", codes=(0, 1)),
    _fit("links", "links.csv", codes=(0, 1)),
    Writes("fit report", "fit report kept.npz --plot fit.png"),
)
