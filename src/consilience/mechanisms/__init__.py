"""Mechanisms: a workload and a budget in, private measurements and a model out."""

from consilience.mechanisms.aim import AIM, CalibratedAIM
from consilience.mechanisms.auto import Auto
from consilience.mechanisms.dual_query import CalibratedDualQuery, DualQuery
from consilience.mechanisms.fem import FEM, CalibratedFEM
from consilience.mechanisms.fixed import CalibratedTables, Gaussian, Laplace
from consilience.mechanisms.game import SelectionRelease
from consilience.mechanisms.hdmm import HDMM, CalibratedHDMM
from consilience.mechanisms.mechanism import (
    Calibrated,
    Call,
    Mechanism,
    Release,
    Result,
    Source,
    check_budget,
)
from consilience.mechanisms.mwem import MWEM, CalibratedMWEM
from consilience.mechanisms.pilot import CalibratedPilot, Pilot
from consilience.mechanisms.residual_planner import (
    CalibratedResidualPlanner,
    ResidualPlan,
    ResidualPlanner,
)
from consilience.mechanisms.rounds import CalibratedAdaptive, Round, Run

__all__ = [
    "AIM",
    "FEM",
    "HDMM",
    "MWEM",
    "Auto",
    "Calibrated",
    "CalibratedAIM",
    "CalibratedAdaptive",
    "CalibratedDualQuery",
    "CalibratedFEM",
    "CalibratedHDMM",
    "CalibratedMWEM",
    "CalibratedPilot",
    "CalibratedResidualPlanner",
    "CalibratedTables",
    "Call",
    "DualQuery",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Pilot",
    "Release",
    "ResidualPlan",
    "ResidualPlanner",
    "Result",
    "Round",
    "Run",
    "SelectionRelease",
    "Source",
    "check_budget",
]
