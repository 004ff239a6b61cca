"""A sweep in Python, 27 points (tp x pp x spread) of GPT-3 175B on 1,024 GPUs: `predict_many` against one `predict` per point.

python benchmarks/sweep.py [--alone]       # programs are compiled anew; seconds, and programs compiled per point
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from itertools import product

SPREADS = (0.5, 1.0, 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true", help="one `predict` per point too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        import jax
        from jax import monitoring

        from prism_jax import Job, load_job, predict, predict_many

        compiled = []

        def note(event: str, duration_secs: float, **_: str | int) -> None:
            if event == "/jax/core/compile/backend_compile_duration":
                compiled.append(duration_secs)

        monitoring.register_event_duration_secs_listener(note)
        base, key = load_job("gpt3_175b_1024"), jax.random.key(0)

        def job(tp: int, pp: int, spread: float) -> Job:
            plan = replace(base.plan, tp=tp, pp=pp, dp=1024 // (tp * pp), virtual_stages=1, schedule="1f1b")
            return replace(base, plan=plan, variability=base.variability.scaled(spread))

        jobs = [job(*point) for point in product((2, 4, 8), (4, 8, 16), SPREADS)]
        started = time.perf_counter()
        predict_many(jobs, key=key)
        many_s = time.perf_counter() - started
        print(f"predict_many of {len(jobs)} points: {many_s:.1f} s, {len(compiled)} programs compiled")
        compiled.clear()
        started = time.perf_counter()
        predict_many([job(8, 8, spread) for spread in (0.6, 0.9, 1.2, 1.4)], key=key)
        print(f"four other spreads: {time.perf_counter() - started:.2f} s, {len(compiled)} programs compiled")
        if arguments.alone:
            jax.clear_caches()
            jax.config.update("jax_enable_compilation_cache", False)
            started = time.perf_counter()
            for one in jobs:
                predict(one, key=key)
            alone_s = time.perf_counter() - started
            print(f"predict of each: {alone_s:.1f} s, {alone_s / many_s:.1f} times as long")


if __name__ == "__main__":
    main()
