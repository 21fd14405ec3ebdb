"""Budgets, noise and the ledger. Stands alone: it knows arrays and numbers, and nothing else of
ours.

A mechanism uses it in this order: calibrate (`budget.split`, `gaussian_sigma`), price (`Cost`),
reserve (`Ledger.reserve`), and only then draw (`SecureNoise`).
"""

from consilience.privacy.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu_squared,
    standard_zcdp_epsilon,
    standard_zcdp_rho,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from consilience.privacy.audit import Audit, approximate, pure, repeated, run_audit
from consilience.privacy.budget import Budget
from consilience.privacy.calibration import (
    analytic_gaussian_sigma,
    gaussian_sigma,
    laplace_scale,
    residual_sigmas,
    selection_epsilon,
    weighted_gaussian_sigmas,
)
from consilience.privacy.composition import delta_at, epsilon_at
from consilience.privacy.cost import Cost, Spend
from consilience.privacy.ledger import Account, Entry, Ledger
from consilience.privacy.noise import NoiseSource, Noisy, SecureNoise, SeededNoise
from consilience.privacy.sensitivity import (
    Neighbours,
    Sensitivity,
    l1_score,
    marginals,
    products,
    residual_family,
    residuals,
    total,
    weighted_l1_score,
    weighted_marginals,
)
from consilience.privacy.units import Epsilon, MuSquared, Rho, Scale, Sigma

__all__ = [
    "Account",
    "Audit",
    "Budget",
    "Cost",
    "Entry",
    "Epsilon",
    "Ledger",
    "MuSquared",
    "Neighbours",
    "NoiseSource",
    "Noisy",
    "Rho",
    "Scale",
    "SecureNoise",
    "SeededNoise",
    "Sensitivity",
    "Sigma",
    "Spend",
    "analytic_gaussian_sigma",
    "approximate",
    "delta_at",
    "epsilon_at",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu_squared",
    "gaussian_sigma",
    "l1_score",
    "laplace_scale",
    "marginals",
    "products",
    "pure",
    "repeated",
    "residual_family",
    "residual_sigmas",
    "residuals",
    "run_audit",
    "selection_epsilon",
    "standard_zcdp_epsilon",
    "standard_zcdp_rho",
    "total",
    "weighted_gaussian_sigmas",
    "weighted_l1_score",
    "weighted_marginals",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
