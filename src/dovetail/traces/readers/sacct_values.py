"""What the values of sacct mean: spans of time, and GPUs, types, CPUs and memory of a TRES list."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

_GPU_ANY = r"gres/gpu=(\d+(?:\.\d+)?)"
_GPU_TYPED = r"gres/gpu:([^=,]+)=(\d+(?:\.\d+)?)"

_GPU_GRES = r"^(?:gres[:/])?gpu(?::([^:(]+))??(?::(\d+))?(?:\(.*)?$"
"""One of a node's generic resources: `gpu`, `gpu:4`, `gpu:2080ti`, `gpu:2080ti:4(IDX:0-3)`."""


def column(table: pl.DataFrame, *names: str) -> pl.Series:
    """Returns the first of these columns that exists, else blank texts."""
    for name in names:
        if name in table.columns:
            return table[name].str.strip_chars()
    return pl.repeat("", table.height, eager=True, dtype=pl.String)


def clock_span_s(texts: pl.Series) -> pl.Series:
    """Returns Slurm's [DAYS-]HH:MM:SS, MM:SS or DAYS-HH as seconds, null for other words."""
    frame = pl.DataFrame({"t": texts})
    groups = pl.col("t").str.extract_groups(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")
    units = (86400.0, 3600.0, 60.0, 1.0)
    parts = [
        groups.struct[i].cast(pl.Float64, strict=False).fill_null(0.0) * unit
        for i, unit in enumerate(units)
    ]
    matched = groups.struct[3].is_not_null()
    return frame.select(pl.when(matched).then(pl.sum_horizontal(parts)).alias("t"))["t"]


def by_distinct(parse: Callable[[pl.Series], pl.Series], texts: pl.Series) -> pl.Series:
    """Returns the parsed texts, with each distinct one parsed once.

    NOTE: logs repeat few requests; importing a million rows takes 4 s this way, 8 s without.
    """
    distinct = texts.unique()
    codes = texts.cast(pl.Enum(distinct)).to_physical()
    return parse(distinct).gather(codes)


def gpu_count(table: pl.DataFrame, tres: pl.Series) -> pl.Series:
    """Returns the GPUs of each job, 0 if unknown."""
    counted = by_distinct(_gpus_of_tres, tres)
    per_node = by_distinct(_gpus_of_gres, _gres(table))
    nodes = column(table, "NNodes", "AllocNodes").cast(pl.Float64, strict=False).fill_null(1.0)
    return counted.zip_with(counted.is_not_null(), per_node * nodes).fill_null(0.0)


def _gres(table: pl.DataFrame) -> pl.Series:
    return column(table, "AllocGRES", "ReqGRES", "ReqGres", "AllocGres")


def _gpus_of_gres(gres: pl.Series) -> pl.Series:
    """Returns the GPUs on each node of a list such as `gpu:2080ti:4,gpu:1`, null for none."""
    counts = gres.str.split(",").list.eval(
        pl.when(pl.element().str.contains(_GPU_GRES)).then(
            pl.element().str.extract(_GPU_GRES, 2).cast(pl.Float64, strict=False).fill_null(1.0)
        )
    )
    return counts.list.drop_nulls().list.sum().set(counts.list.drop_nulls().list.len() == 0, None)


def _types_of_gres(gres: pl.Series) -> pl.Series:
    types = gres.str.to_lowercase().str.split(",").list.eval(pl.element().str.extract(_GPU_GRES, 1))
    return _joined(types.list.drop_nulls())


def gpu_types(table: pl.DataFrame, tres: pl.Series) -> pl.Series:
    """Returns the type of each job's GPUs in small letters; several are joined by bars."""
    typed, counted = by_distinct(gpu_type, tres), by_distinct(_gpus_of_tres, tres)
    of_gres = by_distinct(_types_of_gres, _gres(table))
    return typed.zip_with(counted.is_not_null(), of_gres)


def _gpus_of_tres(tres: pl.Series) -> pl.Series:
    """Returns the total Slurm lists, else the sum over types; null where it lists no GPU."""
    total = tres.str.extract(_GPU_ANY).cast(pl.Float64, strict=False)
    typed = tres.str.extract_all(_GPU_TYPED)
    by_type = typed.list.eval(pl.element().str.extract(_GPU_TYPED, 2).cast(pl.Float64)).list.sum()
    return total.zip_with(total.is_not_null(), by_type.set((by_type == 0).fill_null(False), None))


def gpu_type(tres: pl.Series) -> pl.Series:
    """Returns the type in small letters; several are joined by bars."""
    typed = tres.str.to_lowercase().str.extract_all(_GPU_TYPED)
    return _joined(typed.list.eval(pl.element().str.extract(_GPU_TYPED, 1)))


def _joined(kinds: pl.Series) -> pl.Series:
    return kinds.list.unique(maintain_order=True).list.join("|").fill_null("")


def cpus(tres: pl.Series) -> pl.Series:
    """Returns the CPUs that Slurm lists, null for none."""
    return tres.str.extract(r"(?:^|,)cpu=(\d+)").cast(pl.Float64, strict=False)


def gib(tres: pl.Series) -> pl.Series:
    """Returns the memory that Slurm lists in GiB, null for none."""
    frame = pl.DataFrame({"t": tres})
    groups = pl.col("t").str.extract_groups(r"(?:^|,)mem=([0-9.]+)([KMGTP]?)")
    unit = groups.struct[1].replace_strict(
        {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20},
        default=None,
        return_dtype=pl.Float64,
    )
    return frame.select((groups.struct[0].cast(pl.Float64, strict=False) * unit).alias("t"))["t"]
