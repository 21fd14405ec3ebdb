"""Trust: what an answer rests on. Measured or inferred, through which measured cliques, and how much of it is global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, Domain
from consilience.model.out_of_model import inferred
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.answers import Backbone
from consilience.tree.growth import mutual_information, spanning_tree


@dataclass(frozen=True)
class Basis:
    """What an answer rests on, in words: measured together, inferred from links, or assumed independent.

    links: the measured cliques that hold the attributes; else what was measured of them together, if that ties all of them; else
    the measured cliques along the strongest path between them. parts: the attributes as far as anything links them; more than
    one part are assumed to be independent.
    """

    verdict: str
    links: tuple[Clique, ...]
    parts: tuple[Clique, ...]

    def __str__(self) -> str:
        if self.verdict == "measured":
            return "measured together" if len(self.parts[0]) > 1 else "measured"
        if self.verdict == "inferred":
            shown = ["-".join(c) for c in self.links[:MOST_LINKS]]
            left = len(self.links) - len(shown)
            shown += [f"{left} more"] if left else []
            return "inferred from " + (
                " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
            )
        if len(self.parts) == 1:
            return f"assumed uniform: nothing about {self.parts[0][0]} was measured"
        return "assumed independent: " + ", ".join("-".join(p) for p in self.parts)


MOST_LINKS = 6
"""Links that are named in words."""
Near = dict[str, list[str]]
"""The neighbours of each attribute on the strongest tree of pairs."""


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """What `Model.marginal(attributes)` rests on.

    in_model: fitted to measurements, not inferred. links: the measured cliques that tie the attributes together, in order
    along the strongest path (those that contain them, if in the model); none of them if `linked` is False: then
    independence is assumed between parts. weakest: mutual information, in nats, of the weakest pair on the path.
    violation: largest L1 distance to the model on an overlap. entropy_gap: entropy of the local answer minus that of the
    backbone's, in nats: how much of the answer is global information. stderr: in counts, by bootstrap, where asked for; of
    assuming no more dependence than was measured it holds what measured tables tell (model/assumed.py).
    """

    attributes: Clique
    basis: Basis
    weakest: float
    violation: float
    entropy_gap: float
    method: str
    stderr: Buffer | None = None
    replicates: int = 0

    @property
    def verdict(self) -> str:
        """ "measured", "inferred" (through a path of measured cliques) or "assumed" (nothing links some of the attributes)."""
        return self.basis.verdict

    @property
    def in_model(self) -> bool:
        return self.basis.verdict == "measured"

    @property
    def linked(self) -> bool:
        return self.basis.verdict != "assumed"

    @property
    def links(self) -> tuple[Clique, ...]:
        return self.basis.links

    def __repr__(self) -> str:
        return f"Trust({self.verdict}: {self})"

    def __str__(self) -> str:
        text = f"{' x '.join(self.attributes)}: {self.basis}"
        if self.stderr is not None:
            text += f"; standard error up to {self.stderr.max():.3g} ({self.replicates} refits)"
        return text


def trust_in(
    known: PseudoMarginals,
    attributes: Clique,
    basis: Basis,
    method: str,
    backbone: Callable[[], Backbone],
) -> Trust:
    """The trust record of the marginal over these attributes, by this method."""
    clique = known.domain.clique(attributes)
    if basis.verdict == "measured":
        return Trust(attributes, basis, np.inf, 0.0, 0.0, "stored")
    name = "backbone" if method == "auto" else method
    (table,), violation = inferred(known, [clique], name, backbone)
    (local,), _ = inferred(known, [clique], "local", backbone)
    (whole,) = (
        (table,) if name == "backbone" else inferred(known, [clique], "backbone", backbone)[0]
    )
    linked = basis.verdict == "inferred"
    pairs = strongest_path(known.domain, strongest_tree(known), clique) or [] if linked else []
    weakest = min((mutual_information(known.table(p)) for p in pairs), default=0.0)
    gap = entropy(local) - entropy(whole)
    return Trust(attributes, basis, weakest, float(violation[0]), gap, name)


def basis_of(
    known: PseudoMarginals, clique: Clique, measured: Sequence[Clique], near: Callable[[], Near]
) -> Basis:
    """What an answer over the clique rests on."""
    if known.holds(clique):
        inside = tuple(c for c in measured if set(clique).issubset(c))
        return Basis("measured", inside, (clique,))
    if len(clique) == 1:
        return Basis("assumed", (), (clique,))
    within = [c for c in known.overlaps(clique) if len(c) > 1]
    beside: Near = {a: [b for c in within if a in c for b in c if b != a] for a in clique}
    if len(_parts(known.domain, beside, clique)) == 1:
        return Basis("inferred", tuple(within), (clique,))
    tree = near()
    parts = _parts(known.domain, tree, clique)
    if len(parts) > 1:
        return Basis("assumed", (), parts)
    pairs = strongest_path(known.domain, tree, clique) or []
    return Basis(
        "inferred", tuple(dict.fromkeys(_holder(known, measured, p) for p in pairs)), parts
    )


def entropy(table: Buffer) -> float:
    """H in nats."""
    live = table[table > 0]
    return float(-(live * np.log(live)).sum())


def _holder(known: PseudoMarginals, measured: Sequence[Clique], pair: Clique) -> Clique:
    """The smallest measured clique that holds a pair; the region, where the graph was given and not measured."""
    cliques = Cliques.of(known.domain, measured)
    home = cliques.holders.smallest(pair, cliques.sizes)
    return known.region_of(pair) or pair if home is None else measured[home]


def strongest_tree(known: PseudoMarginals) -> Near:
    """Who is beside whom on the tree of the pairs that tell most about each other."""
    domain = known.domain
    weights = [(p, mutual_information(known.table(p))) for p in known.pairs]
    near: Near = {a: [] for a in domain}
    for a, b in spanning_tree(domain, weights):
        near[a].append(b)
        near[b].append(a)
    return near


def strongest_path(domain: Domain, near: Near, clique: Clique) -> list[Clique] | None:
    """The pairs of the tree that join these attributes, in order of travel; None if it does not join all of them."""
    found: dict[Clique, None] = {}
    for start, end in combinations(clique, 2):
        back = _reached(near, start)
        if end not in back:
            return None
        steps = []
        while end != start:
            steps.append(domain.clique((back[end], end)))
            end = back[end]
        found |= dict.fromkeys(reversed(steps))
    return list(found)


def _reached(near: Near, start: str) -> dict[str, str]:
    """{attribute: the one before it} for all that the tree reaches."""
    back = {start: start}
    queue = [start]
    for a in queue:
        for b in near[a]:
            if b not in back:
                back[b] = a
                queue.append(b)
    return back


def _parts(domain: Domain, near: Near, clique: Clique) -> tuple[Clique, ...]:
    parts: list[Clique] = []
    left = list(clique)
    while left:
        reached = _reached(near, left[0])
        parts.append(domain.clique([a for a in left if a in reached]))
        left = [a for a in left if a not in reached]
    return tuple(parts)
