"""Captures of the four networks under four meshes, which `run.py` reads; needs PyTorch.

python experiments/capture/torch_transformers/record.py [--only gpt2] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prism_jax.capture.front_end import CaptureRequest
from prism_jax.capture.torch.front_end import FRONT_END
from prism_jax.workload.captured.files import write_capture

HERE = Path(__file__).parent
NETWORKS = ("gpt2", "llama2_7b", "mixtral_8x7b", "bert_large")
MESHES = {"dp8": {"dp": 8}, "tp4": {"tp": 4}, "fsdp8": {"fsdp": 8}, "pp4": {"pp": 4}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="networks or meshes with this in their name")
    parser.add_argument("--out", type=Path, default=HERE / "captures")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for network in NETWORKS:
        for mesh, axes in MESHES.items():
            name = f"{network}-{mesh}"
            if args.only in name:
                request = CaptureRequest(
                    f"{HERE}/models.py:{network}", axes=axes, micro_batches=8 if mesh == "pp4" else 1
                )
                program = FRONT_END.capture(request)
                write_capture(args.out / f"{name}.capture.gz", program)
                print(f"{name}: {program.n_rows} rows", flush=True)


if __name__ == "__main__":
    main()
