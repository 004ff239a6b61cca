"""Identity of the GPU of a row, and its node: (node, index) where GPUs are numbered inside their nodes.

A column of GPUs that holds 0 to 7 on every host names eight places, not eight GPUs. Serial numbers and UUIDs name GPUs wherever
they are. What a column holds, its values say: those that most nodes have in common are indices. A name such as "gpu013:4" holds
both.
"""

from __future__ import annotations

import re

import pandas as pd

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# (of pandas without stubs, every expression may be of any type)

SHARED = 0.5  # of the names of GPUs that stand on several nodes: then they are indices
MOST_IN_NODE = 72  # GPUs that one name of a node holds (NVL72)
_INDEX = re.compile(r"^(?:cuda|gpu|device)[ :_#-]?(\d{1,3})$", re.IGNORECASE)  # of a GPU inside its node
_BOTH = re.compile(r"^(?P<node>.*[^:/\s])\s?[:/]\s?(?:gpu)?(?P<index>\d{1,3})$", re.IGNORECASE)
_JOINED = re.compile(r"^(?P<node>.*\d)[-_.](?:gpu|g|dev|local|rank|r)?[-_]?(?P<index>\d{1,2})$", re.IGNORECASE)


def placed(rows: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The rows with `gpu` unique in the fleet and `node` where it can be told; and what was decided on the way.

    Args:
        rows: with the column `gpu`, and `node` or none.
    """
    rows = rows.assign(gpu=_plain(rows["gpu"]))
    if "node" not in rows or rows["node"].isna().all():
        return _from_names(rows.drop(columns="node", errors="ignore"))
    known = rows["node"].notna()
    node = _one_domain(_plain(rows["node"].where(known, "")))
    index = rows["gpu"].str.replace(_INDEX, r"\1", regex=True)
    pairs = pd.DataFrame({"gpu": index, "node": node})[known].drop_duplicates()
    n_nodes = pairs.groupby("gpu")["node"].nunique()
    if pairs["node"].nunique() < 2 or float((n_nodes > 1).mean()) <= SHARED:
        return rows.assign(node=node.where(known)), ()
    first = ", ".join(sorted(n_nodes.index)[:3])
    note = (
        f"GPUs are numbered inside their nodes ({first}, ... on {pairs['node'].nunique():,} nodes): a GPU is node and number, "
        f"{len(pairs):,} in all"
    )
    return rows.assign(node=node.where(known), gpu=(node + ":" + index).where(known, rows["gpu"])), (note,)


def _plain(values: pd.Series) -> pd.Series:
    """Names as text; numbers that were read as 3.0 are 3."""
    return values.astype(str).str.strip().str.replace(r"^(\d{1,9})\.0$", r"\1", regex=True)


def _one_domain(node: pd.Series) -> pd.Series:
    """Hosts that stand in the table with their domain and without are called by the short name."""
    names = node.unique()
    short = {name: name.partition(".")[0] for name in names}
    bare = {name for name in names if short[name] == name and name}
    domains = pd.Series([short[name] for name in names if short[name] != name], dtype=object).value_counts()
    return node.map(
        {name: short[name] if short[name] in bare and domains.get(short[name]) == 1 else name for name in names}
    )


def _from_names(rows: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Nodes from names of GPUs that hold both, if all do and several share one."""
    names = pd.Series(sorted(rows["gpu"].unique()))
    for pattern in (_BOTH, _JOINED):
        parts = names.str.extract(pattern)
        if parts["node"].isna().any():
            continue
        sizes = parts.groupby("node").size()
        regular = len(sizes) > 1 and sizes.median() > 1 and sizes.max() <= MOST_IN_NODE
        if regular and parts["index"].nunique() <= MOST_IN_NODE:
            node = rows["gpu"].map(dict(zip(names, parts["node"], strict=True)))
            example = names.iloc[0]
            note = f"nodes are read from the names of GPUs: {example} is on {parts['node'].iloc[0]}"
            return rows.assign(node=node), (note,)
    return rows, ()
