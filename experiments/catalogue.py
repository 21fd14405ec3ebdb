"""Every experiment: what it reproduces, the command that runs it, where its rows go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """One script. `quick` None: it has no quick form that leaves the committed rows alone. `out`: it takes --out."""

    name: str
    reproduces: str
    script: str
    seeds: str
    hours: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ("--quick",)
    data: bool = True
    out: bool = True

    @property
    def rows(self) -> str:
        return self.script.removesuffix(".py") + ".csv"


AUTHORS = "the authors' five: 2457026461 2643031147 2094276510 2378741324 1961979125"
EXPERIMENTS = (
    Experiment("2ab", "Figure 2a, 2b: accuracy in and out of model", "figure2_accuracy.py", AUTHORS, "20 minutes", data=False),
    Experiment("2c", "Figure 2c: seconds per iteration", "figure2_speed.py", "0 (cliques), 1 (noise)", "10 minutes", data=False),
    Experiment("3a", "Figure 3a: HDMM on fire", "hdmm_fire.py", "0 to 4", "30 minutes"),
    Experiment("3b", "Figure 3b and appendix: MWEM on fire", "mwem_fire.py", "0 to 4", "1 hour", quick=None),
    Experiment("3b-epsilons", "Appendix: MWEM on fire, 0.05 and 0.2 per round", "mwem_epsilons.py", "0 to 4", "10 minutes"),
    Experiment("3c", "Figure 3c and appendix: FEM on adult", "fem_adult.py", AUTHORS, "2 hours"),
    Experiment("noise-free", "Appendix: MWEM without noise, five data sets", "noise_free_mwem.py", "none: nothing is random",
               "1 hour", quick=None, out=False),
    Experiment("table", "Appendix table: adult, nine epsilons", "adult_table.py", "trial 0 to 4, with the epsilon", "4 hours"),
    Experiment("convergence", "Beyond the paper: splitting and Prox-PGM to one optimum", "convergence.py",
               "0 (people), 1 (noise)", "2 minutes", data=False),
    Experiment("rivals", "Beyond the paper: GReM-LNN, ResidualPlanner", "rivals.py", "1", "20 minutes"),
    Experiment("prior", "Beyond the paper: the prior on five data sets", "prior_and_path.py", "1 to 5", "1 hour",
               quick=("--data", "titanic", "--ways", "2", "--epsilons", "1", "--seeds", "1")),
    Experiment("intervals", "Beyond the paper: how often intervals hold the truth", "intervals.py", "0 to 2", "30 minutes"),
    Experiment("aim", "Beyond the paper: AIM beside others' from PyPI", "aim.py", "0 to 4", "1 hour (others': many)"),
    Experiment("choosing", "Beyond the paper: what Auto chooses beside the others", "choosing.py", "100 to 104", "5 hours"),
    Experiment("k-marginal", "Beyond the paper: NIST's k-marginal score", "kmarginal.py", "100 to 104", "1 hour",
               full=("--designs", "auto", "auto-puma", "sample")),
    Experiment("under-mbi", "Beyond the paper: AIM's tables estimated by mbi and by ours", "under_mbi.py", "100", "1 hour"),
    Experiment("learning", "Beyond the paper: classifiers that learn from released rows", "ml_use.py", "100",
               "1 hour, with others' tools", quick=None),
    Experiment("others", "Beyond the paper: others' mechanisms with their own settings", "others.py", "100",
               "2 minutes (others': hours, and their environments)"),
    Experiment("census", "Beyond the paper: simulated census files", "census.py", "3000 to 3009", "20 minutes"),
    Experiment("places", "Beyond the paper: errors of places within places", "places.py", "1000 to 1199", "15 minutes"),
    Experiment("foresight", "Beyond the paper: how close tables came, by their noise", "foresight.py", "0", "1 hour"),
)  # fmt: skip
BY_NAME = {e.name: e for e in EXPERIMENTS}
