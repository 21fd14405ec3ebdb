"""Mechanisms: a workload and a budget in, private measurements and a model out."""

from consilience.mechanisms.adaptive import CalibratedAdaptive
from consilience.mechanisms.aim import AIM, CalibratedAIM
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
    "HDMM",
    "MWEM",
    "Calibrated",
    "CalibratedAIM",
    "CalibratedAdaptive",
    "CalibratedGaussian",
    "CalibratedHDMM",
    "CalibratedLaplace",
    "CalibratedMWEM",
    "CalibratedResidualPlanner",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Release",
    "ResidualPlan",
    "ResidualPlanner",
    "Result",
    "Round",
    "Run",
    "Settings",
    "Source",
    "Step",
]
