"""The nouns of the numeric core: Domain, Clique, CliqueVector, workloads."""

from consilience.domain.clique_vector import Buffer, CliqueVector, Holders, Layout, OverCliques, dot
from consilience.domain.domain import Clique, Domain
from consilience.domain.workloads import Workload, all_marginals, closure, maximal, random_marginals

__all__ = [
    "Buffer",
    "Clique",
    "CliqueVector",
    "Domain",
    "Holders",
    "Layout",
    "OverCliques",
    "Workload",
    "all_marginals",
    "closure",
    "dot",
    "maximal",
    "random_marginals",
]
