"""A record whose blanks are filled as far as rules go; what is stated stays as it is."""

from __future__ import annotations

from ..cluster import cluster_of_record
from ..features.trained import trained_model
from ..record import StepRecord
from .architecture import with_architecture
from .assumption import Assumption, assuming
from .batch import with_batch, with_divided_batch
from .layout import with_degrees
from .peers import Peers
from .sequence import with_seq_len


def completed(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with every blank that has a rule, and the assumptions that this makes.

    Raises:
        UnsupportedRowError: the model or the machine cannot be known, so that no plan can be chosen.
    """
    record, devices = _with_devices(record, peers)
    record, shape = with_architecture(record)
    record, length = with_seq_len(record, peers)
    cluster, model = cluster_of_record(record), trained_model(record)
    record, degrees = with_degrees(record, model, cluster)
    record, batch = with_batch(record, model, cluster)
    record, divided = with_divided_batch(record)
    alike = cluster.device.like
    like = (Assumption("device", alike, f"likeness of {record.gpu!r}"),) if alike else ()
    return record, (*like, *devices, *shape, *length, *degrees, *batch, *divided)


def _with_devices(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The usual number of devices of the source, where a row states a rate per device and no number."""
    beside = peers.value("n_gpus", record)
    has_rate = record.tokens_per_s_per_gpu or record.tflops_per_gpu
    if record.n_gpus is not None or beside is None or not has_rate or record.measured_s:
        return record, ()
    return assuming(record, "as other rows of the source; only a rate per device is given", {"n_gpus": beside})
