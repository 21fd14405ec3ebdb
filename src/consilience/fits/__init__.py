"""Fits: estimators as values. Measurements in, a model out."""

from consilience.fits.graph_fit import GraphFit, Planned
from consilience.fits.laplace_likelihood import LaplaceLikelihood
from consilience.fits.latent_classes import LatentClasses
from consilience.fits.least_squares import LeastSquares
from consilience.fits.norm_cut import NormCut
from consilience.fits.possible_cells import PossibleCells
from consilience.fits.reconstruct import FITS, load, plan, reconstruct
from consilience.fits.selection_likelihood import SelectionLikelihood
from consilience.fits.shrunk import Shrunk
from consilience.model.fit import Fit

__all__ = [
    "FITS",
    "Fit",
    "GraphFit",
    "LaplaceLikelihood",
    "LatentClasses",
    "LeastSquares",
    "NormCut",
    "Planned",
    "PossibleCells",
    "SelectionLikelihood",
    "Shrunk",
    "load",
    "plan",
    "reconstruct",
]
