"""Trust: what an answer rests on. Measured or inferred, through which measured cliques, and how much of it is global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from consilience.domain import Buffer, Clique, Cliques
from consilience.model.out_of_model import inferred
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.answers import Backbone
from consilience.tree.growth import mutual_information, spanning_tree


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """What `Model.marginal(attributes)` rests on.

    in_model: fitted to measurements, not inferred. links: the measured cliques that tie the attributes together, in order
    along the strongest path (those that contain them, if in the model); none of them if `linked` is False: then
    independence is assumed between parts. weakest: mutual information, in nats, of the weakest pair on the path.
    violation: largest L1 distance to the model on an overlap. entropy_gap: entropy of the local answer minus that of the
    backbone's, in nats: how much of the answer is global information. stderr: in counts, by bootstrap, where asked for; it
    holds the noise of the measurements, not the error of assuming no more dependence than was measured.
    """

    attributes: Clique
    in_model: bool
    linked: bool
    links: tuple[Clique, ...]
    weakest: float
    violation: float
    entropy_gap: float
    method: str
    stderr: Buffer | None = None
    replicates: int = 0

    @property
    def verdict(self) -> str:
        """ "measured", "inferred" (through a path of measured cliques) or "assumed" (nothing links some of the attributes)."""
        if self.in_model:
            return "measured"
        return "inferred" if self.linked else "assumed"

    def __repr__(self) -> str:
        return f"Trust({self.verdict}: {self})"

    def __str__(self) -> str:
        name = " x ".join(self.attributes)
        if self.in_model:
            inside = ", ".join(" x ".join(c) for c in self.links) or "the model's graph"
            text = f"{name} is in the model, measured in {inside}"
        elif self.linked:
            through = ", ".join(" x ".join(c) for c in self.links)
            text = (
                f"{name} was not measured together; inferred ({self.method}) through {through}, "
                f"weakest link {self.weakest:.2g} nats"
            )
        else:
            text = f"{name} was not measured together and no measured cliques link all of it; independence is assumed"
        if not self.in_model:
            text += (
                f"; violation {self.violation:.1g}, global information {self.entropy_gap:.2g} nats"
            )
        if self.stderr is not None:
            text += f"; standard error up to {self.stderr.max():.3g} ({self.replicates} refits)"
        return text


def trust_in(
    known: PseudoMarginals,
    attributes: Clique,
    measured: Sequence[Clique],
    method: str,
    backbone: Callable[[], Backbone],
) -> Trust:
    """The trust record of the marginal over these attributes, by this method."""
    clique = known.domain.clique(attributes)
    if known.holds(clique):
        inside = tuple(c for c in measured if set(clique).issubset(c))
        return Trust(attributes, True, True, inside, np.inf, 0.0, 0.0, "stored")
    name = "backbone" if method == "auto" else method
    (table,), violation = inferred(known, [clique], name, backbone)
    (local,), _ = inferred(known, [clique], "local", backbone)
    (whole,) = (
        (table,) if name == "backbone" else inferred(known, [clique], "backbone", backbone)[0]
    )
    path = _path(known, clique)
    pairs = path if path is not None else []
    links = tuple(dict.fromkeys(_holder(known, measured, p) for p in pairs))
    weakest = min((mutual_information(known.table(p)) for p in pairs), default=0.0)
    gap = entropy(local) - entropy(whole)
    return Trust(
        attributes, False, path is not None, links, weakest if path is not None else 0.0,
        float(violation[0]), gap, name,
    )  # fmt: skip


def entropy(table: Buffer) -> float:
    """H in nats."""
    live = table[table > 0]
    return float(-(live * np.log(live)).sum())


def _holder(known: PseudoMarginals, measured: Sequence[Clique], pair: Clique) -> Clique:
    """The smallest measured clique that holds a pair; the region, where the graph was given and not measured."""
    cliques = Cliques.of(known.domain, measured)
    home = cliques.holders.smallest(pair, cliques.sizes)
    return known.region_of(pair) or pair if home is None else measured[home]


def _path(known: PseudoMarginals, clique: Clique) -> list[Clique] | None:
    """The pairs of the strongest tree that join these attributes, in order of travel; None if it does not join all of them."""
    domain = known.domain
    weights = [(p, mutual_information(known.table(p))) for p in known.pairs]
    near: dict[str, list[str]] = {a: [] for a in domain}
    for a, b in spanning_tree(domain, weights):
        near[a].append(b)
        near[b].append(a)
    found: dict[Clique, None] = {}
    for start, end in combinations(clique, 2):
        back = {start: start}
        queue = [start]
        for a in queue:
            for b in near[a]:
                if b not in back:
                    back[b] = a
                    queue.append(b)
        if end not in back:
            return None
        steps = []
        while end != start:
            steps.append(domain.clique((back[end], end)))
            end = back[end]
        found |= dict.fromkeys(reversed(steps))
    return list(found)
