"""One mechanism of one tool, with its own settings, in an environment of its own. `others.py` calls it.

    python experiments/others_tools.py TOOL MECHANISM WAYS EPSILON DELTA RHO SEED IN.npz OUT.npz

IN holds `codes` (rows by columns), `sizes` and `names`; OUT gets the synthetic rows as `codes`. WAYS is the size of the tables
asked for, where a mechanism can be asked. Each tool gets (epsilon, delta) and prices it itself; OpenDP is given rho, by the tight
conversion. Ours also leaves the tables of its model, as `2` and `3`: one flat array each, in the order of combinations.
"""

from __future__ import annotations

import itertools
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

MOST_CELLS = 10_000
"""mbi's, SmartNoise's and dpmm's own limit on tables that AIM is asked for."""
MOST_MAPS = 40_000


class Asked:
    """What one run is given."""

    def __init__(self, words: list[str]) -> None:
        self.mechanism, self.ways = words[0], int(words[1])
        self.epsilon, self.delta, self.rho = (float(w) for w in words[2:5])
        self.seed = int(words[5])
        given = np.load(words[6])
        self.codes, self.sizes = given["codes"], [int(n) for n in given["sizes"]]
        self.names = [str(a) for a in given["names"]]

    def workload(self, most: int | None = None) -> list[tuple[str, ...]]:
        size = self.sizes_of()
        every = itertools.combinations(self.names, self.ways)
        return [c for c in every if most is None or np.prod([size[a] for a in c]) <= most]

    def sizes_of(self) -> dict[str, int]:
        return dict(zip(self.names, self.sizes, strict=True))

    def columns(self) -> dict[str, np.ndarray]:
        return {a: self.codes[:, i] for i, a in enumerate(self.names)}


def mbi_data(asked: Asked) -> Any:
    import mbi

    return mbi.Dataset(asked.columns(), mbi.Domain(tuple(asked.names), tuple(asked.sizes)))


def with_mbi(asked: Asked) -> Any:
    """The scripts of mbi's repository, which must be on the path with its package."""
    np.random.seed(asked.seed)  # noqa: NPY002
    if asked.mechanism == "mst":
        from mst import MST  # pyright: ignore[reportMissingImports]

        return MST(mbi_data(asked), asked.epsilon, asked.delta).to_dict()
    from aim import AIM  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

    workload = [(c, 1.0) for c in asked.workload(MOST_CELLS)]
    return AIM(asked.epsilon, asked.delta).run(mbi_data(asked), workload)[1].to_dict()


def with_dpsynth(asked: Asked) -> Any:
    from dpsynth.discrete_mechanisms import (  # pyright: ignore[reportMissingImports]
        AIMConfig,
        DiscreteConfig,
        SWIFTConfig,
    )

    np.random.seed(asked.seed)  # noqa: NPY002 (mbi's rows come from it; those of SWIFT still differ from run to run)
    drop_programs()
    kind = {"aim": AIMConfig, "swift": SWIFTConfig}[asked.mechanism]
    config = DiscreteConfig(mechanism=kind(workload=asked.workload()))
    if asked.mechanism == "swift":
        # Its search for the budget begins at zero, which dp-accounting of PyPI divides by; all of its noise is Gaussian.
        ready = config.calibrate(zcdp_rho=gaussian_rho(asked.epsilon, asked.delta))
    else:
        ready = config.calibrate(epsilon=asked.epsilon, delta=asked.delta)
    return ready(np.random.default_rng(asked.seed), mbi_data(asked)).synthetic_data.to_dict()


def drop_programs() -> None:
    """JAX keeps what it compiled, in memory maps; Linux gives a process 65,530 of them, and AIM on wide tables needs more.

    AIM asks for a summary once a round; the programs are dropped there when there are many.
    """
    import jax
    import mbi

    summarize = mbi.summarize

    def dropping(*words: Any, **options: Any) -> Any:
        if len(Path("/proc/self/maps").read_text().splitlines()) > MOST_MAPS:
            jax.clear_caches()
        return summarize(*words, **options)

    mbi.summarize = dropping


def gaussian_rho(epsilon: float, delta: float) -> float:
    """Half the square of the largest sensitivity over width of one Gaussian that is (epsilon, delta): all of it, not a bound."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def over(mu: float) -> float:
        low, high = -epsilon / mu - mu / 2, -epsilon / mu + mu / 2
        return norm.cdf(high) - np.exp(epsilon) * norm.cdf(low) - delta

    return float(brentq(over, 1e-3, 10.0)) ** 2 / 2  # pyright: ignore[reportArgumentType]


def with_opendp(asked: Asked) -> Any:
    """The last value of every column plays OpenDP's null, so that tables are as large as ours. Its noise cannot be seeded."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib", "honest-but-curious")
    sizes = asked.sizes_of()
    table = {a: pl.Series(x).replace(sizes[a] - 1, None) for a, x in asked.columns().items()}
    values = dp.option_domain(dp.atom_domain(T="i64"))
    kinds: dict[str, Any] = {"aim": lambda: dp.mbi.AIM(queries=asked.ways), "mst": dp.mbi.MST}
    mechanism, _, _ = dp.mbi.make_contingency_table(
        dp.lazyframe_domain([dp.series_domain(a, values) for a in sizes]),
        dp.frame_distance(dp.symmetric_distance()),
        dp.zero_concentrated_divergence(),
        d_in=[dp.polars.Bound(by=[], per_group=1)],
        d_out=asked.rho,
        keys={a: [*range(n - 1), None] for a, n in sizes.items()},
        algorithm=kinds[asked.mechanism](),
    )
    found = mechanism(pl.DataFrame(table).lazy()).model.synthetic_data()
    return {a: np.asarray(found.df[a]) for a in sizes}


def with_smartnoise(asked: Asked) -> Any:
    """Its own label transformer takes the values of a column from the data, without cost: values that no row has stay out."""
    import pandas as pd
    from snsynth import Synthesizer  # pyright: ignore[reportMissingImports]

    np.random.seed(asked.seed)  # noqa: NPY002
    options = {"degree": asked.ways} if asked.mechanism == "aim" else {}
    kind = Synthesizer.create(asked.mechanism, epsilon=asked.epsilon, delta=asked.delta, **options)
    frame = pd.DataFrame(asked.columns())
    kind.fit(frame, categorical_columns=asked.names)
    return {a: np.asarray(x, np.int64) for a, x in kind.sample(len(frame)).items()}


def with_dpmm(asked: Asked) -> Any:
    import pandas as pd
    from dpmm import pipelines  # pyright: ignore[reportMissingImports]

    kinds = {"aim": "AIMPipeline", "mst": "MSTPipeline", "privbayes": "PrivBayesPipeline"}
    options: dict[str, Any] = {}
    if asked.mechanism == "aim":
        options = {"max_model_size": 80, "gen_kwargs": {"degree": asked.ways}}
    pipe = getattr(pipelines, kinds[asked.mechanism])(
        epsilon=asked.epsilon, delta=asked.delta, disable_processing=True, **options
    )
    frame = pd.DataFrame(asked.columns())
    pipe.fit(frame, asked.sizes_of(), random_state=asked.seed)
    made = pipe.generate(n_records=len(frame), random_state=asked.seed)
    return {a: made[a].to_numpy() for a in asked.names}


def with_ours(asked: Asked) -> Any:
    import consilience as cs
    from consilience import mechanisms
    from consilience.privacy import Budget, SeededNoise

    data = cs.Dataset(asked.columns(), cs.Domain(asked.sizes_of()))
    workload = cs.Workload(data.domain, asked.workload())
    kinds: dict[str, Any] = {
        "auto": mechanisms.Auto,
        "aim": mechanisms.AIM,
        "gaussian": mechanisms.Gaussian,
    }
    budget = Budget(epsilon=asked.epsilon, delta=asked.delta, neighbours="add-remove")
    ready = kinds[asked.mechanism](workload).calibrate(budget)
    model = ready(data, noise=SeededNoise(seed=asked.seed)).model
    drawn = model.sample(round(model.total), rng=asked.seed)
    rows: dict[str, Any] = {a: drawn.column(a) for a in asked.names}
    used = resource.getrusage(
        resource.RUSAGE_SELF
    )  # tables for the judge, below, are not part of the run
    rows["spent"] = [used.ru_utime + used.ru_stime, used.ru_maxrss]
    for size in (2, 3):
        tables = model.marginals(list(itertools.combinations(asked.names, size)))
        rows[str(size)] = np.concatenate([np.asarray(t).reshape(-1) for t in tables])
    return rows


TOOLS = {
    "ours": with_ours,
    "mbi": with_mbi,
    "dpsynth": with_dpsynth,
    "opendp": with_opendp,
    "smartnoise": with_smartnoise,
    "dpmm": with_dpmm,
}

if __name__ == "__main__":
    tool, *words, out = sys.argv[1:]
    given = Asked(words)
    rows = TOOLS[tool](given)
    codes = np.stack([np.asarray(rows.pop(a)) for a in given.names], axis=1)
    np.savez(out, codes=codes, **{k: rows[k] for k in ("2", "3", "spent") if k in rows})
