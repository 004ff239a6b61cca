"""Are slow phases found in time, and how often is a real log accused of one that it has not?

python experiments/slow_phases/run.py [--data ../shared/data] [--logs 1000] [--seed 1] [--curve]

Windows of up to 960 steps of as many real logs as `--logs`, drawn without replacement.
- false alarms: in the windows as they are. All alarms are counted; *not lasting* are those after which the median of the next ten
  steps is nearer to the old level than to the one that was told. The others are changes that the log does hold.
- found: in copies that are slower by 10 to 50% (log-uniform) from a random step on, an alarm within the first three slow steps.
Beside them the trivial rule: k steps in a row above the running median by a share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from experiments.slow_phases.logs import Log, step_logs
from prism_jax.core.arrays import Floats
from prism_jax.trace.detector import SlowPhaseDetector
from prism_jax.watch.phases import act_at

WINDOW, BEFORE, AFTER = 960, 30, 10  # steps: of a window, before a shift at least, after it at least
SOONEST = 200  # a shift begins at one of so many steps
SHIFTS = (1.1, 1.5)
IN_TIME = 3
LATER = (3, 5, 10)
BLOOM_LEARN = 12  # the chronicle quotes 12 ordinary lines before the slow phase
CURVE = ({"certainty": 0.5}, {"certainty": 0.99}, {"smallest": 0.05}, {"confirm": 4}, {"confirm": 6})
SPREADS = (0.01, 0.02, 0.04, np.inf)
Alarms = list[tuple[int, float, float]]  # told at, log size, log of the level before
Rule = Callable[[np.ndarray], Alarms]


@dataclass(frozen=True)
class Window:
    """Steps of one log, and where and by how much a copy is slowed down."""

    log: Log
    step_s: np.ndarray
    onset: int
    factor: float

    def slowed(self, n_slow: int) -> np.ndarray:
        """The copy, up to so many slow steps."""
        step_s = self.step_s.copy()
        step_s[self.onset :] *= self.factor
        return step_s[: self.onset + n_slow]


def windows(logs: Sequence[Log], n: int, rng: np.random.Generator) -> list[Window]:
    found = []
    for index in rng.permutation(len(logs))[:n]:
        log = logs[index]
        first = int(rng.integers(0, max(len(log.step_s) - WINDOW, 0) + 1))
        step_s = log.step_s[first : first + WINDOW]
        onset = int(rng.integers(BEFORE, min(len(step_s) - AFTER, BEFORE + SOONEST)))
        found.append(Window(log, step_s, onset, float(np.exp(rng.uniform(*np.log(SHIFTS))))))
    return found


def ours(**settings: float) -> Rule:
    def alarms(step_s: np.ndarray) -> Alarms:
        detector = SlowPhaseDetector(**settings)  # pyright: ignore[reportArgumentType]
        changes = filter(None, map(detector.update, step_s.tolist()))
        return [(change.told, change.log_size, change.log_before) for change in changes if change.log_size > 0]

    return alarms


def above_median(share: float, in_a_row: int) -> Rule:
    def alarms(step_s: np.ndarray) -> Alarms:
        usual = pd.Series(step_s).rolling(50, min_periods=20).median().shift(in_a_row).to_numpy()
        over = np.log(step_s / usual)
        high = np.nan_to_num(over) > np.log1p(share)
        run = high.copy()
        for back in range(1, in_a_row):
            run[back:] &= high[:-back]
            run[:back] = False
        told = np.flatnonzero(run & ~np.concatenate([[False], run[:-1]]))
        return [(int(at), float(over[at]), float(np.log(usual[at]))) for at in told]

    return alarms


def lasts(step_s: np.ndarray, told: int, log_size: float, log_before: float) -> bool:
    after = step_s[told + 1 : told + 11]
    return len(after) < 3 or float(np.log(np.median(after))) - log_before >= 0.5 * log_size


def score(chosen: Sequence[Window], rule: Rule) -> pd.DataFrame:
    """One row per window."""
    rows = []
    for window in chosen:
        alarms = rule(window.step_s)
        told = [at - window.onset for at, *_ in rule(window.slowed(max(LATER))) if at >= window.onset]
        delay = min(told, default=np.inf) + 1
        rows.append(
            {
                "kind": window.log.kind,
                "tuned": window.log.is_tuned_on,
                "spread": window.log.spread,
                "steps": len(window.step_s),
                "alarms": len(alarms),
                "of 10%": sum(size >= np.log(1.1) for _, size, _ in alarms),
                "not lasting": sum(not lasts(window.step_s, *alarm) for alarm in alarms),
                **{f"found in {n}": delay <= n for n in LATER},
            }
        )
    return pd.DataFrame(rows)


def line(name: str, table: pd.DataFrame) -> str:
    per = 1e5 / max(table.steps.sum(), 1)
    rates = "".join(f"{per * table[column].sum():>13.2f}" for column in ("alarms", "of 10%", "not lasting"))
    found = "".join(f"{table[f'found in {n}'].mean():>12.1%}" for n in LATER)
    return f"{name:<34}{len(table):>6}{table.steps.sum():>10,}{rates}{found}"


def limit(chosen: Sequence[Window], per_step: float = 1e-5) -> float:
    """Share of the shifts that the best test of a known level finds in time, if steps were independent normal ones.

    Args:
        per_step: false alarms.
    """
    size = np.log([window.factor for window in chosen]) / np.maximum([window.log.spread for window in chosen], 1e-3)
    return float(norm.sf(norm.isf(per_step) - size * IN_TIME**0.5).mean())


def bloom(data: Path) -> list[str]:
    """The lines that the chronicle of BLOOM quotes, in their order."""
    quoted = pd.read_csv(data / "reliability" / "bloom_step_samples.csv")
    detector = SlowPhaseDetector(n_learn=BLOOM_LEARN)
    said = []
    for step, seconds in zip(quoted.iteration, quoted.step_s, strict=True):
        change = detector.update(seconds)
        if change is not None:
            onset = quoted.iteration[change.onset]
            said.append(
                f"step {onset} on, +{np.expm1(change.log_size):.1%}, told at step {step}, prob {change.prob:.3f}"
            )
    return said


def paid_s(lost_s: Floats, cost_s: float) -> float:
    """Seconds that the rule costs in a phase with these losses, the restart included."""
    at = act_at(lost_s, cost_s)
    return float(np.sum(lost_s)) if at is None else float(np.sum(lost_s[: at + 1])) + cost_s


def least_s(lost_s: Floats, cost_s: float) -> float:
    """Seconds that the best decision in hindsight costs: never to act, or to act at once."""
    return min(float(np.sum(lost_s)), cost_s)


def ski_rental(rng: np.random.Generator, n: int = 10_000) -> float:
    """Largest ratio of what the rule costs to what hindsight would, for phases of all lengths; steps cost little."""
    ratios = []
    for _ in range(n):
        cost_s = float(np.exp(rng.uniform(np.log(10.0), np.log(1e4))))
        lost_s = rng.exponential(cost_s * 1e-3, int(rng.integers(1, 5000)))
        ratios.append(paid_s(lost_s, cost_s) / least_s(lost_s, cost_s))
    return max(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--curve", action="store_true", help="other settings, too")
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    chosen = windows(step_logs(asked.data), asked.logs, rng)
    print(f"{'':<34}{'logs':>6}{'steps':>10}{'alarms':>13}{'of 10%':>13}{'not lasting':>13}", end="")
    print("".join(f"{f'found in {n}':>12}" for n in LATER) + "   (alarms per 1e5 steps)")
    table = score(chosen, ours())
    print(line("watch", table))
    for name, rows in (("settings were chosen on", table.tuned), ("not seen before", ~table.tuned)):
        print(line(f"  {name}", table.loc[rows]))
        print(line("    without Megatron-LM CI", table.loc[rows & (table.kind != "megatron-ci")]))
    for low, high in zip((0.0, *SPREADS), SPREADS, strict=False):
        print(line(f"  spread {low:.0%} to {high:.0%}", table.loc[(table.spread >= low) & (table.spread < high)]))
    for kind, part in table.groupby("kind"):
        print(line(f"  {kind}", part))
    for share, in_a_row in ((0.05, 1), (0.05, 3), (0.07, 3), (0.09, 3)):
        print(line(f"{in_a_row} in a row {share:.0%} over the median", score(chosen, above_median(share, in_a_row))))
    for settings in CURVE if asked.curve else ():
        said = ", ".join(f"{name} {value:g}" for name, value in settings.items())
        print(line(f"watch, {said}", score(chosen, ours(**settings))), flush=True)
    print(
        f"limit: {limit(chosen):.1%} within {IN_TIME} steps at 1 false alarm per 1e5 steps, normal steps, known level"
    )
    print("BLOOM-176B, quoted lines:", "; ".join(bloom(asked.data)) or "not found")
    print(f"act or wait: at most {ski_rental(rng):.4f} times the best decision in hindsight, 10,000 phases")


if __name__ == "__main__":
    main()
