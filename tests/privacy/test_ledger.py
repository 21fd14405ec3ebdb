"""The ledger: exact, once, for one table; damage is noticed and nothing is spent."""

import shutil
import sqlite3
from fractions import Fraction

import pytest

import consilience.privacy.ledger as ledger_module
from consilience.errors import BudgetError, InsufficientBudgetError, LedgerError
from consilience.privacy.budget import Budget
from consilience.privacy.calibration import gaussian_sigma
from consilience.privacy.cost import Cost
from consilience.privacy.ledger import Ledger
from consilience.privacy.sensitivity import Neighbours, marginals
from consilience.privacy.units import Epsilon, Scale, Sigma

REPLACE = Neighbours.REPLACE_ONE
ONE = marginals(REPLACE)
PURE = Budget(epsilon=1.0, neighbours="replace-one")
TENTH = Cost.laplace(ONE, Scale(20))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, table="people", total=PURE)


def test_ten_tenths_and_no_eleventh(ledger, path):
    for i in range(10):
        assert ledger.reserve(TENTH, f"release {i}").number == i + 1
    with pytest.raises(InsufficientBudgetError) as caught:
        ledger.reserve(TENTH, "one too many")
    assert str(caught.value) == (
        "the release costs epsilon 0.1, but only 0 of 1 is left; nothing was spent"
    )
    assert (caught.value.remaining, caught.value.requested) == (0.0, 0.1)
    account = Ledger(path, table="people").read()
    assert account.spent.epsilon == Epsilon(1)
    assert [e.description for e in account.entries] == [f"release {i}" for i in range(10)]
    assert account.entries[3].cost == TENTH
    assert account.total == PURE
    assert account.table == "people"


@pytest.mark.parametrize(
    "budget",
    [
        PURE,
        Budget(rho=Fraction(1, 3), delta=1e-9, neighbours="replace-one"),
        Budget(epsilon=0.1, delta=1e-6, neighbours="replace-one"),
        Budget(epsilon=0.1, delta=1e-6, neighbours="replace-one", accounting="gaussian"),
    ],
    ids=repr,
)
def test_the_total_comes_back_exactly(path, budget):
    ledger = Ledger.create(path, table="t", total=budget)
    assert ledger.read().total == budget
    if budget.accounting != "pure":
        costs = [
            Cost.gaussian(ONE, gaussian_sigma(ONE, share)) for share in budget.split([1, 2, 4])
        ]
        for cost in costs:
            ledger.reserve(cost, "share")
        assert [e.cost for e in ledger.read().entries] == costs
        with pytest.raises(InsufficientBudgetError):
            ledger.reserve(Cost.gaussian(ONE, Sigma(1e6)), "sliver")


def test_checking_spends_nothing(ledger):
    ledger.check(TENTH)
    with pytest.raises(InsufficientBudgetError):
        ledger.check(TENTH * 11)
    assert ledger.read().entries == ()


def test_a_ledger_is_one_file(ledger, path, tmp_path):
    ledger.reserve(TENTH, "x")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    copy = tmp_path / "copy.ledger"
    shutil.copy(path, copy)
    assert Ledger(copy, table="people").read() == ledger.read()


def test_full_synchronisation(path, ledger):
    db = ledger_module._connect(path, "rw")
    assert db.execute("PRAGMA synchronous").fetchone()[0] == 3  # EXTRA
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    db.close()


OTHER = Cost.laplace(marginals(Neighbours.ADD_REMOVE), Scale(20))


@pytest.mark.parametrize(
    "use, error, words",
    [
        (lambda p: Ledger(p, table="horses"), LedgerError, "protects table 'people', not 'horses'"),
        (
            lambda p: Ledger(p).reserve(OTHER, "x"),
            LedgerError,
            "replace-one neighbours per row, the release for add-remove",
        ),
        (
            lambda p: Ledger(p).reserve(Cost.gaussian(ONE, Sigma(9)), "x"),
            BudgetError,
            "pure accounting takes only pure mechanisms, got gaussian",
        ),
        (lambda p: Ledger(p).reserve(Cost(REPLACE), "x"), BudgetError, "a Cost that is not empty"),
        (
            lambda p: Ledger(p).reserve(0.1, "x"),
            BudgetError,
            "must have a Cost that is not empty, got 0.1",
        ),
        (
            lambda p: Ledger.create(p, table="people", total=PURE),
            LedgerError,
            "exists; open it instead",
        ),
        (lambda p: Ledger.create(p, table="", total=PURE), LedgerError, "must name the table"),
        (
            lambda p: Ledger.create(p, table="t", total=1.0),
            LedgerError,
            "must be a Budget, got 1.0",
        ),
        (lambda p: Ledger(p.with_name("none")), LedgerError, "there is no ledger at"),
        (
            lambda p: Ledger.create(p / "deep" / "er", table="t", total=PURE),
            LedgerError,
            "cannot be written",
        ),
    ],
)
def test_wrong_uses_spend_nothing(ledger, path, use, error, words):
    before = path.read_bytes()
    with pytest.raises(error) as caught:
        use(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def edit(path, statement):
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda p: p.write_bytes(b""), "is not a ledger of Consilience"),
        (lambda p: p.write_text("epsilon,1\n" * 500), "is damaged: file is not a database"),
        (lambda p: p.write_bytes(p.read_bytes()[:5000]), "is damaged"),
        (lambda p: edit(p, "PRAGMA application_id = 1"), "is not a ledger of Consilience"),
        (lambda p: edit(p, "PRAGMA user_version = 9"), "must be of version 1, got 9"),
        (
            lambda p: edit(p, "DELETE FROM entry WHERE number = 3"),
            "is damaged: its head speaks of 3 entries, 2 match",
        ),
        (
            lambda p: edit(p, "DELETE FROM entry WHERE number = 2"),
            "entry 3 does not match its digest",
        ),
        (
            lambda p: edit(p, "UPDATE entry SET spends = replace(spends, '1/10', '1/99')"),
            "entry 1 does not match its digest",
        ),
        (
            lambda p: edit(p, "UPDATE entry SET description = 'y' WHERE number = 2"),
            "entry 2 does not match",
        ),
        (
            lambda p: edit(p, "UPDATE head SET budget = replace(budget, '\"1\"', '\"9\"')"),
            "entry 1 does not match its digest",
        ),
        (lambda p: edit(p, "UPDATE head SET budget = 'plenty'"), "is damaged: it cannot be read"),
        (
            lambda p: edit(p, "UPDATE head SET table_id = 'horses'"),
            "entry 1 does not match its digest",
        ),
        (lambda p: edit(p, "DELETE FROM head"), "is damaged: its head is missing"),
        (lambda p: edit(p, "DROP TABLE entry"), "no such table: entry"),
    ],
)
def test_damage_is_noticed(ledger, path, damage, words):
    for _ in range(3):
        ledger.reserve(TENTH, "x")
    damage(path)
    before = path.read_bytes()
    for use in (lambda: Ledger(path), lambda: ledger.read(), lambda: ledger.reserve(TENTH, "y")):
        with pytest.raises(LedgerError) as caught:
            use()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_any_flipped_byte_is_noticed_or_harmless(ledger, path):
    """Every 37th byte of the file in turn: the ledger is refused, or says what it said before."""
    for _ in range(3):
        ledger.reserve(TENTH, "x" * 50)
    truth, whole = ledger.read(), path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 37):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            assert ledger.read() == truth
        except LedgerError:
            refused += 1
    assert refused > 10


def test_a_locked_ledger_is_waited_for_and_then_refused(ledger, path, monkeypatch):
    monkeypatch.setattr(ledger_module, "_WAIT_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="cannot be used, release nothing: database is locked"):
        ledger.reserve(TENTH, "x")
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.reserve(TENTH, "x").number == 1


def test_an_error_inside_a_reservation_spends_nothing(ledger, monkeypatch):
    monkeypatch.setattr(ledger_module.Cost, "to_record", lambda cost: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ledger.reserve(TENTH, "x")
    assert ledger.read().entries == ()
