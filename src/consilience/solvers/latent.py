"""Latent classes as a prior: a mixture fitted to all evidence at once, and how far each table may leave it.

The tables of a mixture share strength: what all noisy pairs say together is known far better than any one of them. So each
table is pulled towards the mixture's by as much as its own noise warrants:

    minimise  L(tau) + sum_r (N / (sigma_r g_r)) KL(tau_r || b_r)   over L(G)

with b_r the mixture's table. How strongly classes are kept from following the noise is chosen by thinning it, as in
solvers/prior.py, and the freedom g_r of each table by Stein's estimate of the risk. Only noisy values are used, so neither
costs privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, CliqueVector, Domain
from consilience.kernels.cells import pull_risks
from consilience.kernels.threads import spread
from consilience.measurements.evidence import Evidence
from consilience.progress import Progress
from consilience.solvers.beside import pulled
from consilience.solvers.mixture import Mixture, PairEvidence, fit_mixture

THINNING = 0.5
"""c of y + c s g and y - s g / c."""
PULLS = (12.0, 4.0, 1.2)
"""Tried, in units of N / sigma, the strongest first."""
WORSE = 0.025
"""The strongest pull is taken that gains all but this share of what the best one gains over the strongest, in thinned misfit:
squared distance judges, and total variation likes classes that follow the data a little less."""
CHANCE = 2.0
"""Standard deviations by which a weaker pull must be closer to count: by chance, classes that follow the noise are at times."""
MUCH_NOISE, LITTLE_NOISE, LEAST_NOISE = 0.3, 0.1, 0.05
"""Expected total variation of the noise in a pair's table. Above the first the weakest pull is a little stronger. Below the
second there is more to fit: more steps. Below the third another mixture speaks for larger tables."""
STRONGER = 1.25
LARGER = 6.0
"""The pull of the mixture for larger tables where there is little noise: pairs are known then, and what counts is that it adds
nothing to them that they do not say."""
MEMBERS, FEWER_MEMBERS = 4, 2
"""Mixtures that are averaged, where the sum of sizes is EASY and beyond: what only one of them says is mostly noise."""
STEPS, JUDGED_STEPS, REFIT_STEPS = 250, 120, 150
CLASSES, LEAST_CLASSES, JUDGED_CLASSES = 256, 32, 96
"""Of a fit, and of one that only compares pulls."""
PRODUCTS = 200.0
"""Multiplications of BLAS in the time of a visit."""
EASY = 700
"""Sum of sizes up to which there are that many classes; beyond, their number falls with its square."""
FREEDOMS = np.geomspace(1e-3, 1e3, 13)
ONE_WAY_FREEDOMS = np.geomspace(1e-2, 1e3, 11)
TOLL = 2.0
"""Price of distance from the prior, in units of the noise: so that chance does not pay."""
SMALLEST = 1e-12


def usual_classes(domain: Domain) -> int:
    """As many classes as the size of the domain leaves time for, where there is much noise."""
    length = sum(domain.shape)
    return int(np.clip(CLASSES * (EASY / length) ** 2, LEAST_CLASSES, CLASSES))


def refit_work(domain: Domain, classes: int | None) -> float:
    """Visits of cells that one mixture costs in a refit (solvers/work.py): its products run at BLAS's speed."""
    length, number = float(sum(domain.shape)), classes or usual_classes(domain)
    return REFIT_STEPS * number * (1.5 * length**2 / PRODUCTS + 4 * length)


@dataclass(frozen=True, eq=False)
class LatentPrior:
    """The mixture that tables of pairs are pulled towards, the one that speaks for larger tables (the same, where there is
    noise), and the pull that kept the classes of the first from following the noise, in units of N / sigma.
    """

    pairs: Mixture
    larger: Mixture
    pull: float


def fit_prior(
    evidence: Evidence,
    classes: int | None,
    seed: int,
    progress: Progress | None = None,
    known: float | None = None,
) -> LatentPrior:
    """Mixtures fitted to the evidence about pairs, with the pull that thinning chooses.

    known: the pull that it chose before. It is then taken, and one mixture is fitted in fewer steps: for refits that only
    estimate errors.
    """
    data = PairEvidence.of(evidence)
    usual = usual_classes(evidence.domain) if classes is None else classes
    rng = np.random.default_rng(seed)
    pull = _best_pull(data, usual, rng, progress) if known is None else known

    def fitted(pull: float, number: int, steps: int, members: int) -> Mixture:
        found = [
            fit_mixture(
                data,
                pull * data.typical,
                classes=number,
                steps=steps,
                seed=seed + k,
                progress=progress,
            )
            for k in range(members)
        ]
        weights = np.concatenate([w for w, _ in found]).astype(np.float64)
        shares = np.concatenate([u for _, u in found], axis=1).astype(np.float64)
        shares /= np.repeat(np.add.reduceat(shares, data.first), data.sizes, axis=0)
        return Mixture(evidence.domain, weights / weights.sum(), shares)

    small = classes is None and 2 * len(data.one) <= EASY
    if known is not None:
        quick = fitted(pull, usual, REFIT_STEPS, 1)
        return LatentPrior(quick, quick, pull)
    little = data.noise < LITTLE_NOISE
    members = MEMBERS if len(data.one) <= EASY else FEWER_MEMBERS
    pairs = fitted(pull, usual, (2 if little else 1) * STEPS, members)
    if data.noise >= LEAST_NOISE:
        return LatentPrior(pairs, pairs, pull)
    return LatentPrior(pairs, fitted(LARGER, (2 if small else 1) * usual, 2 * STEPS, 1), pull)


def _best_pull(
    data: PairEvidence, classes: int, rng: np.random.Generator, progress: Progress | None
) -> float:
    if not data.blocks:
        return PULLS[0]
    thin, judge = data.thinned(THINNING, rng)
    pulls = [q * (STRONGER if data.noise > MUCH_NOISE else 1.0) for q in PULLS]
    found = [
        fit_mixture(
            thin,
            q * data.typical,
            classes=min(classes, JUDGED_CLASSES),
            steps=JUDGED_STEPS,
            seed=0,
            progress=progress,
        )
        for q in pulls
    ]
    noise = (1 + THINNING**-2) ** 0.5  # of what judges, in units of that of the whole
    gains = [0.0]
    for weaker in found[1:]:
        gain, scatter = judge.gain(found[0], weaker)
        gains.append(gain if gain > CHANCE * noise * scatter else 0.0)
    wanted = (1 - WORSE) * max(gains)
    return next(q for q, gain in zip(pulls, gains, strict=True) if gain >= wanted)


# -- how far tables may leave their prior ----------------------------------------------------------------


def freedoms(
    noisy: CliqueVector, prior: CliqueVector, unit: Buffer, price: Buffer
) -> tuple[Buffer, Buffer]:
    """g_r of each table: the least estimated risk, with a toll for distance and the mean over all tables against chance; and
    what it was.

    noisy, prior: in probability scale. unit: N / sigma_r. price: the share of a table's cells that carry noise of their own.
    """
    risk, far = _risks(noisy, prior, unit, price, FREEDOMS)
    tolled = risk + TOLL * np.sqrt(far)
    best = (tolled + risk.mean(axis=0)).argmin(axis=1)
    return FREEDOMS[best], np.take_along_axis(tolled, best[:, None], axis=1)[:, 0]


def one_ways(evidence: Evidence, mixture: Mixture) -> tuple[CliqueVector, Buffer]:
    """Distributions of single attributes, the noisy ones pulled towards the mixture's; and the freedom of each."""
    domain, n = evidence.domain, evidence.total
    cliques = [(a,) for a in domain.attributes]
    prior = mixture.marginals(cliques)
    found = CliqueVector(prior.layout, prior.values.copy())
    at = evidence.tables.layout.index
    known = [i for i, a in enumerate(cliques) if a in at and evidence.precision[1 + at[a]] > 0]
    free = np.full(len(cliques), ONE_WAY_FREEDOMS[0])
    if known:
        listed = [cliques[i] for i in known]
        noisy, base = (
            CliqueVector.from_tables(domain, {c: v[c] for c in listed})
            for v in (evidence.tables / n, prior)
        )
        unit = n * np.sqrt(evidence.precision[[1 + at[c] for c in listed]])
        risk, far = _risks(noisy, base, unit, np.ones(len(known)), ONE_WAY_FREEDOMS)
        free[known] = ONE_WAY_FREEDOMS[(risk + TOLL * np.sqrt(far)).argmin(axis=1)]
        for c, s, g in zip(listed, unit, free[known], strict=True):
            table = pulled(noisy[c] * s, base[c] * s, g)
            found[c][...] = np.maximum(table / table.sum(), SMALLEST)
    return found, free


def _risks(
    noisy: CliqueVector, prior: CliqueVector, unit: Buffer, price: Buffer, tried: Buffer
) -> tuple[Buffer, Buffer]:
    at, many = noisy.layout.offsets, len(noisy)
    risk, far = np.empty((2, many, len(tried)))
    spread(
        pull_risks, many, 10 * len(tried) * len(noisy.values), noisy.values, prior.values, unit, tried, price, at, risk, far
    )  # fmt: skip
    return risk, far
