"""The authors' numbers, as published or as in their result files: typed in, so that figures need no data folder.

Total variation for Figure 2, the table and FEM (the paper says L1); full L1 for MWEM; RMSE in counts for HDMM.
"""

from __future__ import annotations

_K = (1, 5, 8, 10, 15, 20, 30, 40, 55)


def _by_k(*values: float) -> dict[int, float]:
    return dict(zip(_K, values, strict=True))


FIGURE_2AB: dict[str, dict[str, dict[int, float]]] = {
    "in_model": {
        "noisy": _by_k(.0032, .0164, .0258, .0324, .0484, .0653, .0974, .1281, .1758),
        "exact": _by_k(.0020, .0075, .0101, .0125, .0155, .0158, .0208, .0236, .0262),
        "saturated": _by_k(.0021, .0077, .0123, .0133, .0174, .0206, .0267, .0320, .0382),
        "factor": _by_k(.0021, .0081, .0117, .0147, .0203, .0256, .0351, .0440, .0561),
    },
    "out_of_model": {
        "exact": _by_k(.7613, .3432, .0498, .0433, .0401, .0364, .0256, .0242, .0238),
        "saturated": _by_k(.7613, .3648, .1183, .0898, .0760, .0552, .0405, .0312, .0319),
        "over-saturated": _by_k(.7618, .3579, .0629, .0528, .0501, .0439, .0361, .0308, .0324),
        "factor": _by_k(.7630, .4164, .1734, .1747, .1803, .1811, .1858, .1888, .1525),
    },
}  # fmt: skip
"""Means over the five seeds, except where one did not finish: then over the other four."""
MISSING_SEED: dict[tuple[str, int], int] = {
    ("exact", 8): 2378741324,
    ("exact", 20): 2457026461,
    ("saturated", 8): 2643031147,
}

FIGURE_2C: dict[tuple[str, str], dict[int, float]] = {
    ("saturated", "random"): {10: .016, 109: .505, 1048: 6.63, 10_000: 95.6},
    ("saturated", "greedy"): {1048: 6.37, 10_000: 119.9},
    ("exact", "random"): {42: .498, 51: 21.6},
    ("exact", "greedy"): {494: 1.09, 1048: 37.1, 1264: 136.9},
}  # fmt: skip
"""Seconds per iteration; exact fails beyond the last."""

_HDMM_K = (1, 2, 4, 8, 16, 32, 64, 128, 256, 455)
HDMM: dict[str, dict[int, float]] = {
    "expected": dict(zip(_HDMM_K, (1.414, 1.935, 4.140, 8.887, 17.587, 28.673, 58.655, 116.98, 240.86, 418.57), strict=True)),
    "exact": dict(zip(_HDMM_K[:5], (.833, 1.299, 2.434, 5.119, 9.954), strict=True)),
    "region graph": dict(zip(_HDMM_K, (.832, 1.294, 2.562, 5.210, 10.060, 15.081, 25.492, 49.584, 90.783, 141.94), strict=True)),
}  # fmt: skip

_ROUNDS: tuple[int, ...] = (5, 10, 15, 20, 25, 30, 35, 50, 70, 105)
_RG = {
    .05: (.743, .622, .3684, .1518, .116, .093, .0766, .0514, .0362, .0274),
    .1: (.740, .6188, .364, .147, .1118, .0882, .0718, .044, .0262, .0156),
    .2: (.739, .617, .363, .1452, .110, .087, .070, .041, .022, .010),
}  # fmt: skip
_EXACT = {
    .05: (.7092, .1848, .0772, .0464, .0356, .0326, .0294),
    .1: (.705, .178, .0738, .0404, .0294, .025, .0194),
    .2: (.703, .1758, .073, .039, .027, .023, .0164),
}  # fmt: skip


def _by_round(*values: float) -> dict[int, float]:
    return dict(zip(_ROUNDS, values, strict=False))


MWEM = {("region graph", e): _by_round(*v) for e, v in _RG.items()} | {
    ("exact", e): _by_round(*v) for e, v in _EXACT.items()
}
"""Mean L1 over all pairs, by (engine, epsilon per round) and round; exact stops at round 37 or 38."""

_FEM_E = (.1, .15, .2, .25, .5, 1.0)  # fmt: skip
FEM: dict[tuple[str, str], dict[float, float]] = {
    ("fem", "total_variation"): dict(zip(_FEM_E, (.5758, .5320, .5159, .5039, .4718, .4391), strict=True)),
    ("region graph", "total_variation"): dict(zip(_FEM_E, (.5407, .4919, .4806, .4716, .4379, .4101), strict=True)),
    ("fem", "largest"): dict(zip(_FEM_E, (.1732, .1345, .1208, .1121, .0870, .0744), strict=True)),
    ("region graph", "largest"): dict(zip(_FEM_E, (.1501, .1217, .1077, .1107, .0840, .1075), strict=True)),
}  # fmt: skip

_TABLE_E = tuple(10.0 ** (i / 2) for i in range(-4, 5))


def _column(
    means: tuple[float, ...], spreads: tuple[float, ...]
) -> dict[float, tuple[float, float]]:
    return dict(zip(_TABLE_E, zip(means, spreads, strict=True), strict=True))


TABLE: dict[str, dict[float, tuple[float, float]]] = {
    "global": _column(
        (.4375, .2848, .1724, .0908, .0433, .0187, .0074, .0037, .0027),
        (.0245, .0081, .0032, .0009, .0008, .0001, .0001, 0, 0),
    ),
    "local-10000": _column(
        (.5630, .3277, .1788, .0931, .0447, .0198, .0087, .0045, .0032),
        (.0344, .0100, .0025, .0018, .0006, .0002, .0001, 0, 0),
    ),
    "priview": _column(
        (.5229, .3525, .1965, .1007, .0510, .0229, .0095, .0040, .0018),
        (.0202, .0078, .0051, .0016, .0003, .0003, .0001, 0, 0),
    ),
    "relaxed_projection-paper": _column(
        (.4189, .2567, .1620, .1031, .0746, .0617, .0582, .0579, .0574),
        (.0275, .0045, .0036, .0025, .0009, .0007, .0011, .0017, .0012),
    ),
    "noisy": _column(
        (28.050, 8.8782, 2.8091, .8919, .2853, .0934, .0324, .0125, .0054),
        (.1249, .0254, .0101, .0030, .0007, .0003, .0001, 0, 0),
    ),
}  # fmt: skip
"""Mean and spread of five trials by column and epsilon."""

UNPUBLISHED: dict[tuple[str, int], dict[str, dict[float, float]]] = {
    ("fire", 2): {"region graph": {.1: .0304, 1.0: .0042, 10.0: .0011}, "priview": {.1: .0304, 1.0: .0041, 10.0: .0006}},
    ("fire", 3): {"region graph": {.1: .1191, 1.0: .0248, 10.0: .0175}, "priview": {.1: .1100, 1.0: .0184, 10.0: .0028}},
    ("msnbc", 3): {"region graph": {.1: .0785, 1.0: .0255, 10.0: .0191}, "priview": {.1: .0767, 1.0: .0236, 10.0: .0049}},
    ("loans", 2): {"region graph": {.1: .3635, 1.0: .1318, 10.0: .0504}, "priview": {.1: .3528, 1.0: .1369, 10.0: .0585}},
    ("titanic", 2): {"region graph": {.1: .6753, 1.0: .2622, 10.0: .0705}, "priview": {.1: .6496, 1.0: .2677, 10.0: .0831}},
    ("adult", 3): {"region graph": {.1: .3284, 1.0: .1037, 10.0: .0310}},
}  # fmt: skip
"""32 random marginals, Gaussian noise, one run each; total variation."""

NOISE_FREE: dict[str, dict[str, dict[int, float]]] = {
    "fire": {
        "exact": {0: 1.4094, 10: .1684, 20: .0302, 30: .0118},
        "region graph": {0: 1.4094, 10: .6138, 20: .1410, 30: .0816},
    },
    "adult": {
        "exact": {0: 1.5331, 10: .1038, 20: .0459, 33: .0258},
        "region graph": {0: 1.5331, 10: .1160, 20: .0743, 33: .0442},
    },
    "msnbc": {
        "exact": {0: 1.7389, 10: .4384, 15: .0797, 20: .0312, 26: .0169},
        "region graph": {0: 1.7389, 10: .5137, 15: .2343, 20: .2080, 26: .1832},
    },
    "loans": {
        "exact": {0: 1.7400, 30: .1311, 35: .0930, 42: .0818},
        "region graph": {0: 1.7400, 30: .2782, 35: .2331, 42: .1670},
    },
    "titanic": {
        "exact": {0: 1.3076, 10: .1241, 20: .0912, 35: .0151},
        "region graph": {0: 1.3076, 10: .1678, 20: .1304, 35: .0205},
    },
}  # fmt: skip
"""Mean L1 over all pairs by round, nothing noisy; exact stops at the last."""
