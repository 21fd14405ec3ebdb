"""Mechanisms: a workload and a budget in, private measurements and a model out."""

from consilience.mechanisms.adaptive import CalibratedAdaptive
from consilience.mechanisms.aim import AIM, CalibratedAIM
from consilience.mechanisms.gaussian import CalibratedGaussian, Gaussian
from consilience.mechanisms.laplace import CalibratedLaplace, Laplace
from consilience.mechanisms.mechanism import Calibrated, Mechanism, Release, Result, Step
from consilience.mechanisms.mwem import MWEM, CalibratedMWEM
from consilience.mechanisms.rounds import Round, Run
from consilience.mechanisms.settings import Settings
from consilience.mechanisms.source import Source

__all__ = [
    "AIM",
    "MWEM",
    "Calibrated",
    "CalibratedAIM",
    "CalibratedAdaptive",
    "CalibratedGaussian",
    "CalibratedLaplace",
    "CalibratedMWEM",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Release",
    "Result",
    "Round",
    "Run",
    "Settings",
    "Source",
    "Step",
]
