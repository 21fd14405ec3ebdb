"""All pairs of 15 columns of generated people in a Parquet file, counted by engine: seconds and peak memory.

    python benchmarks/sources.py [--rows 20000000] [--engine duckdb|spark|kernel] [--file people.parquet]

The file is made once, in batches, and kept. CPU-seconds are of this process and all that it started (for Spark: Java and its
Python workers), in counting; Java compiles itself meanwhile, so few rows are unfair to Spark. Peak memory is that of the
process (for Spark: of Python; the Java process is given --spark-memory). Counts are compared with those of the first engine
that was run on the file.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import consilience as cs
from consilience.data import POPULATION_SCHEMA, Numeric, Schema, population_table
from consilience.data.tables import open_source

SCHEMA = Schema(
    [*POPULATION_SCHEMA, Numeric("distance", (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0))]
)
"""The population's 14 columns and one more."""
AT_ONCE = 500_000


def make(path: Path, rows: int) -> None:
    """The same 500,000 people again and again, with a number of their own each time: fast to make, real to read."""
    rng = np.random.default_rng(7)
    base = {k: pa.array(v, from_pandas=True) for k, v in population_table(AT_ONCE, rng).items()}
    writer = None
    for start in range(0, rows, AT_ONCE):
        n = min(AT_ONCE, rows - start)
        order = pa.array(rng.permutation(AT_ONCE)[:n])
        columns = {k: v.take(order) for k, v in base.items()}
        columns["distance"] = pa.array(np.round(rng.gamma(1.5, 8.0, n), 2))
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def spark_source(path: Path, memory: str):
    import ibis
    from pyspark.sql import SparkSession

    from consilience.data.engines import EngineTable

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.read.parquet(str(path)).createOrReplaceTempView("people")
    return EngineTable(SCHEMA, ibis.pyspark.connect(session).table("people"), str(path))


def cpu_seconds() -> float:
    """Of this process and all below it."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], used[pid] = int(parts[1]), sum(map(int, parts[11:15]))
    mine = {os.getpid()}
    for _ in range(6):
        mine |= {p for p, above in parents.items() if above in mine}
    return sum(used[p] for p in mine) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument(
        "--engine", choices=["duckdb", "spark", "kernel", "make"], default="duckdb"
    )
    options.add_argument("--file", type=Path, default=Path("people-20m.parquet"))
    options.add_argument("--spark-memory", default="2g")
    chosen = options.parse_args()
    if not chosen.file.exists():
        start = perf_counter()
        make(chosen.file, chosen.rows)
        print(f"made {chosen.file} in {perf_counter() - start:.0f} s")
    if chosen.engine == "make":
        return
    pairs = cs.all_marginals(SCHEMA.domain, 2)
    start = perf_counter()
    match chosen.engine:
        case "spark":
            source = spark_source(chosen.file, chosen.spark_memory)
        case "kernel":
            source = cs.read_table(chosen.file, schema=SCHEMA)
        case _:
            source = open_source(chosen.file, SCHEMA)
    opened, before = perf_counter() - start, cpu_seconds()
    counts = source.marginals(pairs)
    seconds, cpu = perf_counter() - start - opened, cpu_seconds() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{chosen.engine}: {len(pairs)} pairs, {counts.values.size:,} cells, {counts[pairs.cliques[0]].sum():,.0f} rows: "
        f"{seconds:.1f} s ({opened:.1f} to open), {cpu:.1f} CPU-seconds, peak {peak:.2f} GB"
    )
    kept = chosen.file.with_suffix(".counts.npy")
    if kept.exists():
        same = np.array_equal(np.load(kept), counts.values)
        print("counts equal to those of the first engine" if same else "COUNTS DIFFER")
        sys.exit(0 if same else 1)
    np.save(kept, counts.values)


if __name__ == "__main__":
    main()
