"""Names from files of failures, queues and studies on the terminal: as `test_printed_text`."""

from pathlib import Path

import pytest

from tests.prism_jax.shell.calls import Said, said
from tests.prism_jax.shell.test_printed_text import CLUSTER, EVIL, MODEL, PLAN, QUOTED, _table

FILES = {
    "job.yaml": MODEL + CLUSTER + PLAN,
    "named.yaml": f"name: {QUOTED}\n" + MODEL + CLUSTER + PLAN,
    "cause.yaml": f"name: {QUOTED}\nsource: {QUOTED}\nhazards: [{{cause: {QUOTED}, per_gpu_h: 1e-5, repair: 2 h}}]\n",
    "field.yaml": f"hazards: [{{cause: x, {QUOTED}: 1}}]\n",
    "unit.yaml": f"hazards: [{{cause: x, per_gpu_h: 1e-5, repair: {QUOTED}}}]\n",
    "failures.csv": _table({"cluster": EVIL, "gpus": "1000", "nodes": "125", "hours": EVIL, "count": "3"}),
    "kind.csv": _table({"cluster": EVIL, "gpus": "1000", "hours": "100", "count": "3", "kind": EVIL}),
    "repairs.csv": _table({"system": EVIL, "node": EVIL, "start": EVIL, "end": "2024-01-02 10:00Z"}),
    "revocation.csv": _table(
        {"zone": EVIL, "gpu": EVIL, "kind": EVIL, "trace": EVIL, "start_s": "0", "duration_s": "9"}
    ),
    "prices.csv": _table({"cloud": EVIL, "instance": EVIL, "gpu": EVIL, "gpus": "8", "usd_h": "3", "zone": EVIL}),
    "money.csv": _table({"cloud": EVIL, "gpu": "A100", "gpus": "8", "usd_h": EVIL}),
    "rented.json": '{"steps_done": 1, ' + f"{QUOTED}: 1}}",
    "queue.csv": _table({"submit_s": "0", "gpus": EVIL, "duration_s": "9", "vc": EVIL}),
    "groups.csv": _table(*({"submit_s": f"{n}", "gpus": "1", "duration_s": "9", "vc": EVIL} for n in range(9))),
    "log.csv": _table({"step": EVIL, "step_time_s": "0.4"}),
    "log_header.csv": _table({"step": "1", EVIL: "0.4"}),
}
FEW = ("--samples", "64")
CALLS: dict[str, list[str]] = {
    **{
        f"run {n}": ["run", "job.yaml", "--steps", "9", "--reliability", f"{n}.yaml"]
        for n in ("cause", "field", "unit")
    },
    "run by name": ["run", "job.yaml", "--steps", "9", "--reliability", EVIL],
    **{
        f"run {n}": ["run", "job.yaml", "--steps", "9", n, EVIL]
        for n in ("--mtbf", "--checkpoint", "--spares", "--policy")
    },
    "named job": ["run", "named.yaml", "--steps", "9", "--worlds", "100", "--mtbf", "3h"],
    **{f"fit {n}": ["fit", n, f"{n}.csv", "--method", "map"] for n in ("failures", "repairs", "revocation")},
    "fit kinds": ["fit", "failures", "kind.csv", "--method", "map"],
    "cloud": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv"],
    "cloud money": ["cloud", "job.yaml", "--steps", "9", "--catalog", "money.csv"],
    "cloud region": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--regions", EVIL],
    "cloud policy": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--policy", EVIL],
    "cloud law": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--availability", EVIL],
    "cloud state": ["cloud", "job.yaml", "--steps", "9", "--catalog", "prices.csv", "--resume", "rented.json"],
    "queue": ["queue", "queue.csv"],
    "queue group": ["queue", "groups.csv", "--group", EVIL, "--seeds", "2"],
    "queue no group": ["queue", "groups.csv", "--group", "x" + EVIL],
    "watch": ["watch", "log.csv"],
    "watch header": ["watch", "log_header.csv"],
    "sweep field": ["sweep", "job.yaml", "--set", f"{EVIL}=1,2", *FEW],
    "sweep value": ["sweep", "job.yaml", "--set", f"plan.tp={EVIL},2", *FEW],
    "sweep names": ["sweep", "job.yaml", "--set", f"name=a,{EVIL.replace(',', '')}", *FEW],
    "scale": ["scale", "named.yaml", "--gpus", "8", *FEW],
    "scale target": ["scale", "job.yaml", "--gpus", "8", "--target", EVIL, *FEW],
    "compare": ["compare", "named.yaml", "job.yaml", *FEW],
    "compare price": ["compare", "job.yaml", "named.yaml", "--price", f"{EVIL}=2", *FEW],
    "capacity": ["capacity", "named.yaml", "--fleet", f"8x{EVIL}", *FEW],
    "host": ["trace", "host", EVIL],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    folder = tmp_path_factory.mktemp("printed")
    for name, text in FILES.items():
        Path(folder / name).write_text(text, encoding="utf-8")
    return said(CALLS, folder, timeout_s=300.0)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_from_outside_steers_the_terminal(answers: dict[str, Said], name: str) -> None:
    answer = answers[name]
    assert answer.code in (0, 1, 2)
    assert "bug" not in answer.err
    for text in (answer.out, answer.err):
        assert all(letter.isprintable() or letter == "\n" for letter in text), ascii(text)
        assert not any(line.lstrip(" │").startswith("forged") for line in text.split("\n")), text


def test_most_places_show_the_text_spelt_out(answers: dict[str, Said]) -> None:
    shown = [name for name, answer in answers.items() if "\\x1b" in answer.out + answer.err]
    assert len(shown) >= 0.5 * len(CALLS), sorted(set(CALLS) - set(shown))
