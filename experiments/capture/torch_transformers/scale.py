"""Time and memory of capturing Llama 3 405B from its code: 8,192 ranks, tp 8, pp 16, FSDP 64; needs PyTorch.

python experiments/capture/torch_transformers/scale.py [--world 8192] [--out FILE]
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from prism_jax.capture.front_end import CaptureRequest
from prism_jax.capture.torch.front_end import FRONT_END
from prism_jax.workload.captured.files import write_capture

SECONDS_BAR, BYTES_BAR = 60.0, 4e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=8192)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    begin, cpu = time.perf_counter(), time.process_time()
    source = f"{Path(__file__).parent}/models.py:llama3_405b"
    program = FRONT_END.capture(
        CaptureRequest(source, args.world, {"tp": 8, "pp": 16, "fsdp": args.world // 128}, micro_batches=32)
    )
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{program.n_stage} stages, {program.n_rows} rows, {sum(one.flops() for one in program.classes):.4g} FLOPs")
    print(
        f"wall {wall_s:.1f} s (bar {SECONDS_BAR:.0f}), processor {cpu_s:.1f} s; "
        f"memory {peak / 1e9:.2f} GB (bar {BYTES_BAR / 1e9:.0f})"
    )
    if args.out is not None:
        write_capture(args.out, program)


if __name__ == "__main__":
    main()
