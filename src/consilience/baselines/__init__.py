"""Baselines: the reconstructions that the paper compares with, behind one protocol."""

from consilience.baselines.answers import Answers, Tables
from consilience.baselines.priview import norm_cut, norm_sub, priview
from consilience.baselines.relaxed_projection import Mixture, relaxed_projection

__all__ = [
    "Answers",
    "Mixture",
    "Tables",
    "norm_cut",
    "norm_sub",
    "priview",
    "relaxed_projection",
]
