"""Mechanisms: a workload and a budget in, private measurements and a model out."""

from consilience.mechanisms.adaptive import CalibratedAdaptive
from consilience.mechanisms.aim import AIM, CalibratedAIM
from consilience.mechanisms.dual_query import CalibratedDualQuery, DualQuery
from consilience.mechanisms.fem import FEM, CalibratedFEM
from consilience.mechanisms.fem_game import SelectionRelease
from consilience.mechanisms.fem_reconstruct import GameFit
from consilience.mechanisms.gaussian import CalibratedGaussian, Gaussian
from consilience.mechanisms.hdmm import HDMM, CalibratedHDMM
from consilience.mechanisms.laplace import CalibratedLaplace, Laplace
from consilience.mechanisms.mechanism import Calibrated, Mechanism, Release, Result, Step
from consilience.mechanisms.mwem import MWEM, CalibratedMWEM
from consilience.mechanisms.residual_planner import CalibratedResidualPlanner, ResidualPlanner
from consilience.mechanisms.residual_planner_plan import ResidualPlan
from consilience.mechanisms.rounds import Round, Run
from consilience.mechanisms.settings import Settings
from consilience.mechanisms.source import Source

__all__ = [
    "AIM",
    "FEM",
    "HDMM",
    "MWEM",
    "Calibrated",
    "CalibratedAIM",
    "CalibratedAdaptive",
    "CalibratedDualQuery",
    "CalibratedFEM",
    "CalibratedGaussian",
    "CalibratedHDMM",
    "CalibratedLaplace",
    "CalibratedMWEM",
    "CalibratedResidualPlanner",
    "DualQuery",
    "GameFit",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Release",
    "ResidualPlan",
    "ResidualPlanner",
    "Result",
    "Round",
    "Run",
    "SelectionRelease",
    "Settings",
    "Source",
    "Step",
]
