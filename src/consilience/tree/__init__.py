"""The exact model: a junction tree, rooted once; its oracle, support, fit, answers, rows and growth."""

from consilience.tree.answers import Backbone, TreeAnswers
from consilience.tree.fit import NoisyTables, TreeFit, fit_noisy, fit_tree
from consilience.tree.growth import GrowingModel, backbone_of
from consilience.tree.oracle import ExactOracle, ExactState, exact_marginals
from consilience.tree.point import TreePoint
from consilience.tree.rows import tree_rows
from consilience.tree.support import SupportTree

__all__ = [
    "Backbone",
    "ExactOracle",
    "ExactState",
    "GrowingModel",
    "NoisyTables",
    "SupportTree",
    "TreeAnswers",
    "TreeFit",
    "TreePoint",
    "backbone_of",
    "exact_marginals",
    "fit_noisy",
    "fit_tree",
    "tree_rows",
]
