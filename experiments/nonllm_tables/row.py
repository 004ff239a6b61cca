"""TableRow: one line of a published table of training rates, in one form whatever the table. Seconds, counts, no percent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableRow:
    """One measured configuration, data parallel over all GPUs.

    Attributes:
        id: table and number of the line.
        table: dle | dlperf | sia | timm | iterations.
        name: of the model, as the table writes it.
        gpu: name of a device preset.
        n_gpus: all of them.
        gpus_per_node: most of them in one node.
        batch_per_gpu: samples of one micro-batch.
        n_accumulated: micro-batches per optimizer step.
        step_s: seconds of an optimizer step.
        source: of the row; what is left out together: an example, a framework, a system.
        precision: fp32 | tf32 | fp16.
        framework: as the table names it.
        seq_len: tokens of a sample; 0: not stated.
        image: side of an image; 0: not stated.
        is_compiled: a compiler (XLA) fused operations.
        layout: of images: nchw | nhwc; empty: not stated.
        task: what is trained, in the words of the table: its section.
        network: between nodes, as stated.
    """

    id: str
    table: str
    name: str
    gpu: str
    n_gpus: int
    gpus_per_node: int
    batch_per_gpu: int
    n_accumulated: int
    step_s: float
    source: str
    precision: str
    framework: str = ""
    seq_len: int = 0
    image: int = 0
    is_compiled: bool = False
    layout: str = ""
    task: str = ""
    network: str = ""
