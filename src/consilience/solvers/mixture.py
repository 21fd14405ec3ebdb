"""Mixture: latent classes within which attributes are independent. One distribution over the whole domain.

    p(x) = sum_k w_k prod_i u_ki(x_i)

Any marginal has a closed form, and rows are drawn class by class. `fit_mixture` finds one for noisy evidence about pairs:

    minimise  sum_ij p_ij / 2 ||C (T_ij - y_ij)||^2 + sum_i p_i / 2 ||m_i - y_i||^2 + pull sum_i I(class; attribute i)

with T and m its tables of pairs and single attributes, C the part of a pair beyond its one-way marginals, and I the mutual
information, which keeps classes from following the noise. Not convex: Adam from a seeded start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from consilience.domain import Buffer, CliqueVector, Domain, Layout
from consilience.kernels import products as kernels
from consilience.kernels.threads import spread
from consilience.loop import Check, iterate
from consilience.measurements.evidence import Evidence
from consilience.progress import Progress
from consilience.regions.wiring import Ints

Floats = NDArray[np.float32]

PARTS = 8
"""Cliques are dealt to this many work items, each with a gradient of its own; their order of summing is fixed."""


@dataclass(frozen=True, eq=False)
class ProductWiring:
    """Cliques as index arrays into the stacked rows of all attributes (`kernels/products.py`)."""

    layout: Layout
    attribute_first: Ints
    attribute_size: Ints
    at: Ints
    rows: Ints
    ptr: Ints
    first: Ints
    size: Ints
    chunk: Ints

    @classmethod
    def of(cls, layout: Layout) -> ProductWiring:
        domain = layout.domain
        size = np.array(domain.shape, np.int64)
        first = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
        members = np.fromiter(
            chain.from_iterable([domain.position(a) for a in c] for c in layout.cliques), np.int64
        )
        length = np.array([len(c) for c in layout.cliques], np.int64)
        ptr = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        cells = np.diff(layout.offsets)
        rows = cells // size[members[ptr[1:] - 1]]
        return cls(
            layout, first, size, layout.offsets[:-1], rows, ptr, first[members], size[members], _deal(cells)
        )  # fmt: skip

    @property
    def length(self) -> int:
        """Rows of phi: the sizes of all attributes together."""
        return int(self.attribute_size.sum())

    def probabilities(self, phi: Buffer) -> Buffer:
        """softmax of each attribute's rows, in each component."""
        p = np.empty_like(phi)
        kernels.softmax_rows(phi, p, self.attribute_first, self.attribute_size)
        return p

    def marginals(self, p: Buffer, weights: Buffer | None = None) -> CliqueVector:
        """The mixture's marginals on the layout's cliques; each sums to one. Components weigh the same unless told otherwise."""
        out = CliqueVector(self.layout)
        share = np.full(p.shape[1], 1.0 / p.shape[1]) if weights is None else weights
        spread(
            kernels.mixture_marginals, len(self.chunk) - 1, self.layout.cells * 16, p, share, out.values, self.chunk, self.at,
            self.rows, self.ptr, self.first, self.size,
        )  # fmt: skip
        return out

    def gradient(self, p: Buffer, slope: Buffer) -> Buffer:
        """The derivative by phi of <slope, marginals>."""
        parts = np.empty((len(self.chunk) - 1, *p.shape))
        spread(
            kernels.mixture_pullback, len(parts), self.layout.cells * 16, p, slope, parts, self.chunk, self.at,
            self.rows, self.ptr, self.first, self.size,
        )  # fmt: skip
        grad = parts.sum(axis=0)
        kernels.softmax_pullback(p, grad, self.attribute_first, self.attribute_size)
        return grad


def _deal(cells: Ints) -> Ints:
    """Boundaries of at most PARTS runs of cliques with about equally many cells."""
    ends = np.cumsum(cells)
    label = (ends - cells) * PARTS // max(int(ends[-1]), 1)
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    return np.concatenate([starts, [len(cells)]]).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """sum_k weights[k] prod_i p_ki(x_i): one distribution over all attributes."""

    domain: Domain
    weights: Buffer
    probabilities: Buffer
    """One column per class; the rows of each attribute, in domain order, below each other."""

    @property
    def classes(self) -> int:
        return len(self.weights)

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Its distributions on these cliques."""
        layout = Layout(self.domain, cliques)
        return ProductWiring.of(layout).marginals(self.probabilities, self.weights)

    def marginal(self, attributes: Iterable[str]) -> Buffer:
        """Its distribution on these attributes, axes in domain order."""
        clique = self.domain.clique(attributes)
        return self.marginals([clique])[clique] if clique else np.ones(())

    def rows(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """n rows of codes. The number of rows of each class, and of each value within a class, is rounded, not drawn."""
        counts = _systematic(self.weights[None, :], np.array([n]), rng)[0]
        owner = np.repeat(np.arange(self.classes), counts)
        out = np.empty((n, len(self.domain)), np.int32)
        for a, (lo, size) in enumerate(zip(self._first, self.domain.shape, strict=True)):
            share = self.probabilities[lo : lo + size].T
            values = _systematic(share, counts, rng)
            codes = np.repeat(np.tile(np.arange(size), self.classes), values.reshape(-1))
            # The codes of a class in random order: by class, then by a random key.
            out[np.lexsort((rng.random(n), owner)), a] = codes
        return out[rng.permutation(n)]

    @cached_property
    def _first(self) -> list[int]:
        return np.concatenate([[0], np.cumsum(self.domain.shape)[:-1]]).astype(int).tolist()

    def __repr__(self) -> str:
        return f"Mixture({self.classes} classes, {len(self.domain)} attributes)"


def _systematic(shares: Buffer, counts: Ints, rng: np.random.Generator) -> Ints:
    """Whole numbers that add up to counts[k] in row k and are within one of counts[k] shares[k]."""
    ends = np.cumsum(shares, axis=1)
    ends = counts[:, None] * ends / ends[:, -1:]
    ends[:, -1] = counts
    at = np.floor(ends + rng.random((len(counts), 1)))
    at[:, -1] = counts
    return np.diff(np.minimum(at, counts[:, None]), axis=1, prepend=0.0).astype(np.int64)


# -- fitting -------------------------------------------------------------------------------------------

RATE, DECAY, DECAY_SQUARE = 0.2, 0.9, 0.99
SPREAD_OF_START = 1.0
LEAST, TINY = 1e-12, 1e-20
EVERY = 25
PROFILES = 2.0
"""What a class makes of an attribute is smoother than the attribute: bells are so many times as wide as its own mean."""


@dataclass(frozen=True, eq=False)
class _Block:
    """The measured pairs of one attribute with later ones: rows of the attribute, rows of its partners, data and weights."""

    own: slice
    other: slice | Ints
    target: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class PairEvidence:
    """Evidence about pairs and single attributes as the fit of a mixture reads it, in probability scale; precisions are divided
    by the median one of a pair, so that numbers stay small whatever the noise.

    `noise` draws what thinning needs: one standard normal per cell, centred as the residuals are.
    """

    sizes: Ints
    first: Ints
    one: Floats
    """Noisy one-way distributions, below each other."""
    one_weight: Floats
    """Per attribute."""
    blocks: tuple[_Block, ...]
    total: float
    typical: float
    """The median standard deviation of a pair's residual over N: the unit of a pull."""
    noise: float
    """The expected total variation of the noise in a table of a pair."""
    bells: tuple[tuple[slice, Floats], ...]
    """Of the attributes whose neighbouring codes are alike: their rows, and a bell around each code."""

    @classmethod
    def of(cls, evidence: Evidence) -> PairEvidence:
        domain, n = evidence.domain, evidence.total
        sizes = np.array(domain.shape, np.int64)
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        one = np.repeat(1.0 / sizes, sizes)
        one_weight = np.zeros(len(sizes))
        residuals, layout = evidence.residuals, evidence.tables.layout
        partners: dict[int, list[tuple[int, int]]] = {}
        precisions, cells = [], []
        for i, clique in enumerate(layout.cliques.sets):
            p = float(evidence.precision[1 + i])
            if p <= 0:
                continue
            if len(clique) == 1:
                a = clique[0]
                one[first[a] : first[a] + sizes[a]] = evidence.tables.table(i) / n
                one_weight[a] = p
            elif len(clique) == 2 and min(sizes[list(clique)]) > 1:
                partners.setdefault(clique[0], []).append((clique[1], i))
                precisions.append(p)
                cells.append(sizes[clique[0]] * sizes[clique[1]])
        middle = float(np.median(precisions)) if precisions else 1.0
        blocks = []
        for a, found in sorted(partners.items()):
            found.sort()
            target = np.concatenate([residuals.table(i) for _, i in found], axis=1) / n
            weight = np.concatenate(
                [np.full(sizes[b], evidence.precision[1 + i]) for b, i in found]
            )
            rows = np.concatenate([first[b] + np.arange(sizes[b]) for b, _ in found])
            straight = rows[-1] - rows[0] + 1 == len(rows)
            other = slice(int(rows[0]), int(rows[-1]) + 1) if straight else rows
            own = slice(int(first[a]), int(first[a] + sizes[a]))
            blocks.append(
                _Block(own, other, target.astype(np.float32), (weight / middle).astype(np.float32))
            )
        noise = 0.4 * float(np.mean(cells)) / (n * middle**0.5) if precisions else 0.0
        return cls(
            sizes,
            first,
            one.astype(np.float32),
            (one_weight / middle).astype(np.float32),
            tuple(blocks),
            n,
            1.0 / (n * middle**0.5),
            noise,
            tuple(
                (slice(int(first[a]), int(first[a] + sizes[a])), _bells(int(sizes[a]), width))
                for a, width in sorted(evidence.alike.items())
            ),
        )

    def thinned(self, c: float, rng: np.random.Generator) -> tuple[PairEvidence, PairEvidence]:
        """y + c s g and y - s g / c, independent of each other given the truth; g is fresh noise.

        The first has the weights of its noise; the second keeps those of the whole, as a judge.
        """
        fit, judge = [], []
        for b in self.blocks:
            g = (
                self._centred(rng.standard_normal(b.target.shape), b)
                * self.typical
                / np.sqrt(b.weight)
            )
            noisier, other = (
                (b.target + c * g).astype(np.float32),
                (b.target - g / c).astype(np.float32),
            )
            fit.append(_Block(b.own, b.other, noisier, b.weight / np.float32(1 + c**2)))
            judge.append(_Block(b.own, b.other, other, b.weight))
        known = np.maximum(self.one_weight, 1e-30)
        spread_of = np.where(self.one_weight > 0, self.typical / np.sqrt(known), 0.0)
        g = rng.standard_normal(len(self.one)) * np.repeat(spread_of, self.sizes)
        one = (self.one + c * g).astype(np.float32)
        weight = self.one_weight / np.float32(1 + c**2)
        kept = (self.total, self.typical, self.noise, self.bells)
        return (
            PairEvidence(self.sizes, self.first, one, weight, tuple(fit), *kept),
            PairEvidence(self.sizes, self.first, self.one, self.one_weight, tuple(judge), *kept),
        )

    def _centred(self, g: Buffer, b: _Block) -> Buffer:
        """Noise of residuals: centred within each pair of the block."""
        g = g - g.mean(axis=0)
        rows = np.arange(b.other.start, b.other.stop) if isinstance(b.other, slice) else b.other
        owner = np.searchsorted(self.first, rows, side="right") - 1
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        means = np.add.reduceat(g, starts, axis=1) / self.sizes[owner[starts]]
        return g - np.repeat(means, self.sizes[owner[starts]], axis=1)

    def gain(self, one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[float, float]:
        """By how much the second mixture is closer to the pairs than the first, sum p / 2 ||C T - y||^2; and the standard
        deviation of that by the noise of pairs of this weight.
        """
        found, scatter = 0.0, 0.0
        for b in self.blocks:
            off = [self._pairs(b, *mixture) - b.target for mixture in (one, other)]
            gained = np.square(off[0]) - np.square(off[1])
            found += 0.5 * float(np.sum(gained * b.weight, dtype=np.float64))
            apart = np.square(off[0] - off[1])
            scatter += float(np.sum(apart * b.weight, dtype=np.float64))
        return found, self.typical * scatter**0.5

    def _pairs(self, b: _Block, weights: Floats, u: Floats) -> Floats:
        """A mixture's residuals of these pairs, C T."""
        centred = u - np.repeat(1.0 / self.sizes, self.sizes).astype(np.float32)[:, None]
        return np.asarray((centred[b.own] * weights) @ centred[b.other].T, np.float32)


def _bells(codes: int, width: float) -> Floats:
    """A bell around each code, PROFILES times as wide as the attribute's own mean; squares of a row sum to one."""
    apart = np.subtract.outer(np.arange(codes), np.arange(codes)) / (PROFILES * width)
    bells = np.exp(-0.5 * np.square(apart))
    return (bells / np.sqrt(np.square(bells).sum(axis=1, keepdims=True))).astype(np.float32)


@dataclass
class _Working:
    """Parameters of the mixture (log ratios, log weights) and Adam's running means of gradients and of their squares."""

    ratios: Floats
    heights: Floats
    means: list[Floats]
    squares: list[Floats]
    u: Floats
    w: Floats
    done: int = 0


class _Adam:
    """Adam (Kingma and Ba 2015) on the classes of a mixture, as a method of the loop; the rate falls in the second half.

    The parameters are log ratios of a class's shares to the noisy ones of everybody. Where neighbouring codes are alike, ratios
    are sums of bells: a peak (40 hours) stays, and a class departs from everybody smoothly.
    """

    def __init__(self, data: PairEvidence, pull: float, start: Floats, steps: int) -> None:
        self.data, self.pull, self.first, self.steps = data, np.float32(pull), start, steps
        self.even = np.repeat(1.0 / data.sizes, data.sizes).astype(np.float32)[:, None]
        self.one_weight = np.repeat(data.one_weight, data.sizes)
        self.everybody = np.log(np.maximum(data.one, 1e-4))[:, None]

    def start(self) -> _Working:
        ratios, heights = self.first.copy(), np.zeros(self.first.shape[1], np.float32)
        zeros = [np.zeros_like(ratios), np.zeros_like(heights)]
        state = _Working(
            ratios, heights, zeros, [z.copy() for z in zeros], np.empty_like(ratios), heights
        )
        self._settle(state)
        return state

    def _settle(self, state: _Working) -> None:
        """Probabilities and weights of the parameters."""
        data, u = self.data, state.u
        logits = self.everybody + state.ratios
        for rows, bells in data.bells:
            logits[rows] = self.everybody[rows] + bells @ state.ratios[rows]
        np.subtract(logits, self._each(np.maximum.reduceat(logits, data.first)), out=u)
        np.exp(u, out=u)
        u /= self._each(np.add.reduceat(u, data.first))
        w = np.exp(state.heights - state.heights.max())
        state.w = w / w.sum()

    def _each(self, per_attribute: Floats) -> Floats:
        return np.repeat(per_attribute, self.data.sizes, axis=0)

    def step(self, state: _Working, most: int) -> int:
        data, u, w = self.data, state.u, state.w
        centred = u - self.even
        slope = np.zeros_like(u)
        for b in data.blocks:
            own, other = centred[b.own], centred[b.other]
            off = (own * w) @ other.T
            off -= b.target
            off *= b.weight
            slope[b.own] += off @ other
            slope[b.other] += off.T @ own
        one = u @ w
        off_one = (one - data.one) * self.one_weight
        told = np.log(np.maximum(u, LEAST) / np.maximum(one, LEAST)[:, None])
        told *= self.pull
        by_weight = 0.5 * np.einsum("vk,vk->k", slope, centred) + off_one @ u
        by_weight += np.einsum("vk,vk->k", u, told)
        slope += off_one[:, None]
        slope += told
        slope *= w
        slope *= u
        slope -= u * self._each(np.add.reduceat(slope, data.first))
        for rows, bells in data.bells:
            slope[rows] = bells.T @ slope[rows]
        state.done += 1
        rate = RATE * min(1.0, 2 * (1 - (state.done - 1) / self.steps))
        gradients = (slope, w * (by_weight - w @ by_weight))
        for x, g, i in zip((state.ratios, state.heights), gradients, (0, 1), strict=True):
            self._move(state, x, g, i, rate)
        self._settle(state)
        return 1

    def _move(self, state: _Working, x: Floats, g: Floats, i: int, rate: float) -> None:
        mean, square = state.means[i], state.squares[i]
        mean *= np.float32(DECAY)
        mean += np.float32(1 - DECAY) * g
        square *= np.float32(DECAY_SQUARE)
        square += np.float32(1 - DECAY_SQUARE) * np.square(g)
        fix, fix_square = 1 - DECAY**state.done, 1 - DECAY_SQUARE**state.done
        x -= (
            np.float32(rate / fix)
            * mean
            / (np.sqrt(square / np.float32(fix_square)) + np.float32(TINY))
        )

    def check(self, state: _Working, done: int) -> Check:
        return Check()


def fit_mixture(
    data: PairEvidence,
    pull: float,
    *,
    classes: int,
    steps: int,
    seed: int,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """(weights, probabilities) of so many classes, after so many steps from the start that the seed gives.

    BLAS is kept to one thread: the order of its sums, and so the result, would depend on how many there are.
    """
    rng = np.random.default_rng(seed)
    start = SPREAD_OF_START * rng.standard_normal((len(data.one), classes))
    with threadpool_limits(1, "blas"):
        run = iterate(
            _Adam(data, pull, start.astype(np.float32), steps),
            limit=steps,
            tolerance=None,
            when=lambda done: done + EVERY,
            stage="latent classes",
            progress=progress,
        )
    return run.state.w, run.state.u
