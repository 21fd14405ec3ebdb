"""Mechanisms: a workload and a budget in, private measurements and a model out."""

from consilience.mechanisms.gaussian import CalibratedGaussian, Gaussian
from consilience.mechanisms.laplace import CalibratedLaplace, Laplace
from consilience.mechanisms.mechanism import Calibrated, Mechanism, Release, Result, Step
from consilience.mechanisms.settings import Settings
from consilience.mechanisms.source import Source

__all__ = [
    "Calibrated",
    "CalibratedGaussian",
    "CalibratedLaplace",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "Release",
    "Result",
    "Settings",
    "Source",
    "Step",
]
