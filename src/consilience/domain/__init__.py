"""The nouns of the numeric core: Domain, Clique, CliqueVector, workloads."""

from consilience.domain.clique_vector import Buffer, CliqueVector, Layout, OverCliques, dot
from consilience.domain.cliques import Cliques, Family, Holders
from consilience.domain.domain import Clique, Domain
from consilience.domain.workloads import Workload, all_marginals, closure, maximal, random_marginals

__all__ = [
    "Buffer",
    "Clique",
    "CliqueVector",
    "Cliques",
    "Domain",
    "Family",
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
