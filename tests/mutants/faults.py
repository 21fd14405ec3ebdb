"""Faults planted in the code that privacy rests on, each with the test that must notice it.

`make mutants` plants them one by one in a copy of the source and runs that test, which must fail. A change to privacy code that
makes a fault unplantable (its text is gone) is noticed by `test_faults.py`: write the fault anew for the new code.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    file: str
    """In src/consilience."""
    before: str
    after: str
    test: str
    """What must fail, below tests/; -k words may follow."""


SENSITIVITY, COST, NOISE = "privacy/sensitivity.py", "privacy/cost.py", "privacy/noise.py"
CALIBRATION, BUDGET, LEDGER = "privacy/calibration.py", "privacy/budget.py", "privacy/ledger.py"
ACCOUNTING, ROUNDS = "privacy/accounting.py", "mechanisms/rounds.py"
CALL, SOURCE = "mechanisms/mechanism.py", "mechanisms/source.py"
_SENSITIVITY, _CALIBRATION = "privacy/test_sensitivity.py", "privacy/test_calibration.py"
_DRAWN, _LEDGER = "mechanisms/test_stated_and_drawn.py", "privacy/test_ledger.py"
_UNITS, _BUDGET = "release/test_units.py", "privacy/test_budget.py"
_ACCOUNTING, _CRASH = "privacy/test_accounting.py", "cli/test_crash.py"

FAULTS: dict[str, Fault] = {
    # -- sensitivities
    "replacing a row changes one cell": Fault(
        SENSITIVITY, 'return 2 if self.value == "replace-one" else 1', "return 1", _SENSITIVITY
    ),
    "several rows count once in L1": Fault(
        SENSITIVITY, "neighbours, m * Fraction(l1)", "neighbours, Fraction(l1)", _SENSITIVITY
    ),
    "several rows count once in L2": Fault(
        SENSITIVITY, "m * m * Fraction(l2_squared)", "m * Fraction(l2_squared)", _SENSITIVITY
    ),
    "a cell moves by one whatever a unit holds": Fault(
        SENSITIVITY,
        "return Fraction(Neighbours.of(neighbours).rows)",
        "return Fraction(1)",
        _SENSITIVITY,
    ),
    "the number of rows is public for units": Fault(
        SENSITIVITY,
        'return self.value == "replace-one" and self.rows == 1',
        'return self.value == "replace-one"',
        _SENSITIVITY,
    ),
    "the total of units moves by one row less": Fault(
        SENSITIVITY,
        'rows = relation.rows - (relation.value == "replace-one")',
        "rows = relation.rows - 1",
        _SENSITIVITY,
    ),
    "signed queries double instead of quadruple": Fault(
        SENSITIVITY,
        "squares = l2_squared * (c * c if signed else c)",
        "squares = l2_squared * c",
        _SENSITIVITY,
    ),
    "columns are averaged": Fault(
        SENSITIVITY,
        "l2_squared *= max(sum(v * v for v in column) for column in columns)",
        "l2_squared *= sum(sum(v * v for v in column) for column in columns) // len(columns)",
        _SENSITIVITY,
    ),
    "residuals of a replacement only double": Fault(
        SENSITIVITY,
        "square = 2 * square * min(n) // (min(n) - 1)",
        "square = 2 * square",
        _SENSITIVITY,
    ),
    "residuals together: nobody differs": Fault(
        SENSITIVITY, "without - within / (n - 1)", "without", _SENSITIVITY
    ),
    "residuals of places: nobody lives together": Fault(
        SENSITIVITY,
        "least = min(least, _least_sum(sums, [sizes[i] for i in used]))",
        "least = max(0.0, _least_sum(sums, [sizes[i] for i in used]))",
        _SENSITIVITY,
    ),
    "residuals of places: everybody lives together": Fault(
        SENSITIVITY, "0.0 if min(counts) > 1 else np.inf", "np.inf", _SENSITIVITY
    ),
    "the table of places is the total": Fault(
        SENSITIVITY, "marginals(relation) if placed else total(relation)", "total(relation)", _SENSITIVITY
    ),
    "residuals together: rows of a unit add up": Fault(
        SENSITIVITY, "relation.rows**2 * joint", "relation.rows * joint", _SENSITIVITY
    ),
    "residuals together: smoothing is forgotten": Fault(
        COST,
        "less = [v - SMOOTHING for v in variances]",
        "less = variances",
        "mechanisms/test_residual_planner.py",
    ),
    "weights are not squared": Fault(
        SENSITIVITY,
        "l2_squared = sum((x * x for x in w), Fraction(0))",
        "l2_squared = sum(w, Fraction(0))",
        _SENSITIVITY,
    ),
    "the smallest weight decides": Fault(
        SENSITIVITY,
        "return max(checked_weights(weights))",
        "return min(checked_weights(weights))",
        "mechanisms/test_mwem.py mechanisms/test_aim.py mechanisms/test_calibration.py",
    ),
    # -- costs
    "Gaussian noise costs half": Fault(
        COST, "round_up(d / (2 * variance))", "round_up(d / (4 * variance))", _CALIBRATION
    ),
    "Laplace noise costs a quarter in rho": Fault(
        COST,
        'sensitivity.l1 / width, Fraction(1, 2))',
        'sensitivity.l1 / width, Fraction(1, 8))',
        "privacy/test_composition.py privacy/test_budget.py privacy/test_calibration.py",
    ),
    "a selection costs a sixteenth": Fault(
        COST, "Fraction(1, 8),", "Fraction(1, 16),", f"{_CALIBRATION} privacy/test_composition.py"
    ),
    "smoothing is forgotten": Fault(
        COST,
        "SMOOTHING = Fraction(2)",
        "SMOOTHING = Fraction(0)",
        "privacy/test_discrete_gaussian.py privacy/test_calibration.py",
    ),
    "equal spends are counted once": Fault(
        COST,
        "counts[once] = counts.get(once, 0) + s.times",
        "counts[once] = s.times",
        f"privacy/test_composition.py {_BUDGET}",
    ),
    "times is lost in a sum of rho": Fault(
        COST,
        "sum((s.rho * s.times for s in self.spends), Fraction(0))",
        "sum((s.rho for s in self.spends), Fraction(0))",
        f"privacy/test_composition.py {_BUDGET}",
    ),
    "neighbours of a sum are not compared": Fault(
        COST, "if cost.neighbours != neighbours:", "if False:", f"{_BUDGET} privacy/test_composition.py"
    ),
    # -- calibration and accounting
    "Laplace of half the width": Fault(
        CALIBRATION,
        "lambda b: _pure(sensitivity, b) <= share))",
        "lambda b: True) / 2)",
        _CALIBRATION,
    ),
    "the Gaussian is enough whatever it is": Fault(
        CALIBRATION,
        "_enough_noise(start, lambda s: _within(Cost.gaussian(sensitivity, Sigma(s)), share))",
        "_enough_noise(0.9 * start, lambda s: True)",
        _CALIBRATION,
    ),
    "a selection of sqrt(16 rho)": Fault(
        CALIBRATION,
        "root = math.sqrt(8 * rho)\n    while Fraction(root) ** 2 > 8 * rho",
        "root = math.sqrt(16 * rho)\n    while Fraction(root) ** 2 > 16 * rho",
        _CALIBRATION,
    ),
    "scores get half the noise": Fault(
        CALIBRATION,
        "float_above(2 * _moving(sensitivity)",
        "float_above(_moving(sensitivity)",
        f"{_CALIBRATION} privacy/test_noise.py",
    ),
    "delta from a rho without its dual term": Fault(
        ACCOUNTING,
        "return excess * ((1 + excess) * r - eps - _dual_term(excess))",
        "return excess * ((1 + excess) * r - eps - 2 * _dual_term(excess))",
        _ACCOUNTING,
    ),
    "rho for an epsilon with half the logarithm": Fault(
        ACCOUNTING,
        "return -(eps + log_delta / excess + _dual_term(excess)) / (1 + excess)",
        "return -(eps + log_delta / excess / 2 + _dual_term(excess)) / (1 + excess)",
        _ACCOUNTING,
    ),
    "mu from twice delta": Fault(
        ACCOUNTING,
        "while _gaussian_delta(mu, eps) > target * (1 - MARGIN) and mu > low:",
        "mu *= 1.2\n    while False:",
        _ACCOUNTING,
    ),
    "any cost is admitted": Fault(
        BUDGET, "if spent is not None and spent <= self.capacity:", "if spent is not None:", _BUDGET
    ),
    "an epsilon is admitted beside its rho": Fault(
        BUDGET, "return cost.epsilon <= self.epsilon", "return True", _BUDGET
    ),
    "the whole epsilon without a reserve": Fault(
        BUDGET, "keep = 1 - _RESERVE", "keep = 1", _BUDGET
    ),
    # -- the ledger
    "the ledger forgets what was spent": Fault(
        LEDGER, "if not total.admits(spent + cost):", "if not total.admits(cost):", _LEDGER
    ),
    "the ledger takes other neighbours": Fault(
        LEDGER, "if cost.neighbours != total.neighbours:", "if False:", _LEDGER
    ),
    "the ledger takes other tables": Fault(
        LEDGER,
        "if self._table is not None and table != self._table:",
        "if False:",
        f"{_LEDGER} release/test_drafts_and_ledgers.py",
    ),
    "a digest that does not match is taken": Fault(
        LEDGER, "if digest != stored:", "if False:", _LEDGER
    ),
    "looking and spending are two steps": Fault(
        LEDGER, '"BEGIN IMMEDIATE"', '"BEGIN"', "privacy/test_ledger_crash.py privacy/test_ledger.py"
    ),
    "a key is not asked for": Fault(
        LEDGER, "if keyed and not given:", "if False:", "release/test_drafts_and_ledgers.py"
    ),
    # -- noise
    "secure Gaussian noise of 0.8": Fault(
        NOISE, "lambda: _gaussian(width), progress)", "lambda: _gaussian(0.8 * width), progress)", _DRAWN
    ),
    "secure Laplace noise of 0.8": Fault(
        NOISE, "lambda: _laplace(width), progress)", "lambda: _laplace(0.8 * width), progress)", _DRAWN
    ),
    "seeded Gaussian noise of 0.8": Fault(
        NOISE,
        's = checked_width(require(sigma, Sigma, "Gaussian noise"))',
        's = 0.8 * checked_width(require(sigma, Sigma, "Gaussian noise"))',
        _DRAWN,
    ),
    "scores on a grid without slack": Fault(NOISE, "_GRID_SLACK = 3", "_GRID_SLACK = 0", _DRAWN),
    "the last chunk of a table has no noise": Fault(
        NOISE,
        "out[start : start + _CHUNK] = _invoke(make(), chunk)",
        "out[start : start + _CHUNK] = _invoke(make(), chunk) if start < 3 * _CHUNK else chunk",
        "privacy/test_noise.py",
    ),
    "floats are rounded instead of refused": Fault(
        NOISE,
        'if array.dtype.kind not in "iu" or array.dtype == np.uint64:',
        'if array.dtype.kind not in "iuf":',
        "privacy/test_noise.py",
    ),
    # -- calls and rounds
    "rounds with 0.8 of the noise": Fault(
        ROUNDS,
        "self._call.noise.discrete_gaussian(exact, width)",
        "self._call.noise.discrete_gaussian(exact, Sigma(0.8 * width.value))",
        _DRAWN,
    ),
    "rounds with 0.8 of the Laplace noise": Fault(
        ROUNDS,
        "self._call.noise.discrete_laplace(exact, width)",
        "self._call.noise.discrete_laplace(exact, type(width)(0.8 * width.value))",
        _DRAWN,
    ),
    "a round is not charged": Fault(
        ROUNDS,
        "self._meter.charge(ask.cost(self._meter.reserved.neighbours))\n        self._ask",
        "self._ask",
        "mechanisms/test_mwem.py mechanisms/test_aim.py",
    ),
    "a choice is not charged": Fault(
        ROUNDS,
        "return Cost.selection(neighbours, self.selection) + measured",
        "return measured",
        "mechanisms/test_mwem.py mechanisms/test_aim.py",
    ),
    "the meter never refuses": Fault(
        ROUNDS, "if beyond or spent.rho > limit.rho:", "if False:", "mechanisms/test_mwem.py mechanisms/test_aim.py"
    ),
    "nothing is reserved": Fault(
        CALL,
        "if ledger is not None:\n            ledger.reserve",
        "if False:\n            ledger.reserve",
        "mechanisms/test_contract.py",
    ),
    "a release pays nothing": Fault(
        "release/drawn.py",
        "            ledger.reserve(cost, description, note)\n",
        "            pass\n",
        f"{_CRASH} -k payment",
    ),
    "a payment is written down after it is made": Fault(
        LEDGER,
        "            if note is not None:\n                note(entry)\n        return entry",
        "        if note is not None:\n            note(entry)\n        return entry",
        f"{_CRASH} -k payment",
    ),
    "what was drawn is drawn again": Fault(
        CALL,
        "if number == len(self._tape.pieces):\n            self._tape.keep(draw())",
        "self._tape.pieces[number:] = []\n        if True:\n            self._tape.keep(draw())",
        f"{_CRASH} -k pieces",
    ),
    "a resumed run is charged from the start": Fault(
        ROUNDS,
        "        self._meter.charge(ask.cost(self._meter.reserved.neighbours))\n        self.begun",
        "        self.begun",
        f"{_CRASH} -k pieces",
    ),
    "anybody's payment will do": Fault(
        "release/drawn.py",
        "if not ledger.holds(self.digest):",
        "if False:",
        f"{_CRASH} -k same_payment",
    ),
    "weights are counted": Fault(
        SOURCE, "and (data.weights != 1).any():", "and False:", "mechanisms/test_bad_input.py"
    ),
    "the total is told under add-remove": Fault(
        CALL,
        "self.total = data.records if ready.budget.neighbours.total_public else None",
        "self.total = data.records",
        "mechanisms/test_contract.py",
    ),
    "whom the table is counted for is not compared": Fault(
        SOURCE, "if counted != promised:", "if False:", _UNITS
    ),
    "a running release may be copied": Fault(
        CALL,
        "def __reduce_ex__(self, protocol: object) -> Any:",
        "def _reduce(self, protocol: object) -> Any:",
        f"{_CRASH} -k copied",
    ),
    # -- mechanisms
    "AIM chooses with the whole share": Fault(
        "mechanisms/aim.py", "return sigma, Rho(share * SELECT_SHARE)", "return sigma, Rho(share)", "mechanisms/test_aim.py"
    ),
    "MWEM pays for one round less": Fault(
        "mechanisms/mwem.py",
        ".cost(budget.neighbours) * rounds",
        ".cost(budget.neighbours) * (rounds - 1)",
        "mechanisms/test_mwem.py",
    ),
    "FEM pays for half its rounds": Fault(
        "mechanisms/fem.py",
        "cost = Cost.selection(budget.neighbours, each) * rounds",
        "cost = Cost.selection(budget.neighbours, each) * max(1, rounds // 2)",
        "mechanisms/test_fem.py",
    ),
    "a game's scores are not scaled": Fault(
        "mechanisms/game.py",
        "change = times * cell_score(self.neighbours)",
        "change = cell_score(self.neighbours)",
        "mechanisms/test_fem.py mechanisms/test_fem_audit.py",
    ),
    "tables states less noise than it draws for": Fault(
        "mechanisms/fixed.py",
        "return stddev(self.width) / self.query.unit",
        "return 0.8 * stddev(self.width) / self.query.unit",
        _DRAWN,
    ),
    # -- tables
    "one row of a unit too many": Fault(
        "records/dataset.py", "kept = np.sort(order[place < rows])", "kept = np.sort(order[place <= rows])", _UNITS
    ),
    "one row of a unit too many, in DuckDB": Fault(
        "data/duck.py", 'f"QUALIFY {first} <= {schema.rows_per_unit}"', 'f"QUALIFY {first} <= {schema.rows_per_unit} + 1"', _UNITS
    ),
    "rows of no unit are counted": Fault(
        "data/duck.py", "WHERE {named} IS NOT NULL ", "WHERE true ", _UNITS
    ),
    # -- releases
    "a draft is released": Fault(
        "release/run.py", "if schema.draft and not accepted:", "if False:", "release/test_drafts_and_ledgers.py"
    ),
    "an accepted draft is marked private": Fault(
        "release/facts.py",
        '"private": noisy.private and not draft,',
        '"private": noisy.private,',
        "release/test_drafts_and_ledgers.py",
    ),
    "what is resumed is not compared with what was paid": Fault(
        "release/paid.py", "if stated is not None and stated != paid_for(ready):", "if False:", f"{_CRASH} -k paid_for"
    ),
    "two releases share a folder": Fault(
        "release/paid.py", "flock(file, LOCK_EX | LOCK_NB)", "pass", f"{_CRASH} -k two_releases"
    ),
    "any delta will do": Fault(
        "release/run.py",
        "budget.delta > MOST_DELTA and not accepted:",
        "budget.delta > 1 and not accepted:",
        "release/test_drafts_and_ledgers.py",
    ),
}  # fmt: skip
