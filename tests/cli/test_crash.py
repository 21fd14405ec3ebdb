"""A release that is stopped anywhere: nothing half-written, an honest ledger, and nothing paid twice."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import BUDGET, run
from consilience.data.schema_file import read_schema
from consilience.domain import Domain, all_marginals
from consilience.errors import ConsilienceError
from consilience.mechanisms import MWEM, SelectionRelease
from consilience.mechanisms.mechanism import Piece
from consilience.mechanisms.rounds import Ask, Run
from consilience.privacy import Budget, Cost, Epsilon, Ledger, Neighbours, SeededNoise, Sigma
from consilience.records import Dataset
from consilience.release import folder as release_folder
from consilience.release import paid as release_paid
from consilience.release import read_release, read_unfinished
from consilience.release import run as release_run
from consilience.release.drawn import TapeOnDisk, read_pieces
from consilience.release.registry import MECHANISMS
from consilience.release.run import Order

HERE = {"people.csv", "people.toml"}
WORDS = ("people.csv", "--schema", "people.toml", *BUDGET, "--ledger", "l", "--out", "out", "-q")


def release(*words: object):
    return run("release", *WORDS, *words)


def spent(place: Path) -> int:
    return len(Ledger(place / "l").read().entries)


def stopped(done, *words: str) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.exit_code == 2, done.output
    assert len(lines) == 1
    for word in ("consilience: ", *words):
        assert word in lines[0]


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


STAGES = {
    "reconstructing": "consilience.fits.least_squares.LeastSquares.__call__",
    "standard errors": "consilience.model.model.Model.uncertainties",
    "tables": "consilience.release.labelled.write_table",
    "model": "consilience.model.model.Model.save",
    "manifest": "consilience.release.folder._manifest",
    "moving": "consilience.release.folder.os.rename",
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("blow", "said"),
    [
        (KeyboardInterrupt, "interrupted"),
        (full_disk, "no space left"),
        (MemoryError, "does not fit the memory"),
    ],
    ids=["ctrl-c", "disk full", "memory"],
)
def test_what_was_paid_for_is_finished_without_paying_again(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    blow: Callable[[], BaseException],
    said: str,
) -> None:
    def fall(*words, **more):
        raise blow()

    with monkeypatch.context() as patch:
        patch.setattr(STAGES[stage], fall)
        stopped(
            release("--errors", "closed-form"),
            said,
            "what was paid for is kept, finish it with: consilience resume out.partial",
        )
    assert set(os.listdir(place)) == HERE | {"l", "out.partial"}
    assert set(os.listdir("out.partial")) <= {
        "README.txt", "asked.json", "schema.toml", "payment.json", "drawn.bin", "paid.npz", "lock",
    }  # fmt: skip
    drawn = read_unfinished(place / "out.partial").arrays["values_0"]
    stopped(release(), "was paid for and not finished", "consilience resume out.partial")
    done = run("resume", "out.partial")
    assert done.exit_code == 0, done.output
    assert set(os.listdir(place)) == HERE | {"l", "out"}
    assert spent(place) == 1
    published = read_release(place / "out")
    np.testing.assert_array_equal(published.model.measurements[0].values, drawn.reshape(-1))
    assert published.facts["standard_errors"] == "closed-form"
    assert json.loads((place / "out" / "ledger.json").read_text())["releases"][0]["number"] == 1


def test_before_anything_is_paid_there_is_nothing_to_keep(place: Path, monkeypatch) -> None:
    monkeypatch.setattr("consilience.data.duck.count_marginals", fail)
    stopped(release(), "interrupted; nothing was written", "ledger had recorded stays spent")
    assert set(os.listdir(place)) == HERE | {"l"}
    assert spent(place) == 0


@pytest.mark.parametrize(
    "stage", ["consilience.mechanisms.fixed.add_noise", "consilience.release.paid._packed"]
)
def test_what_is_paid_and_not_drawn_is_drawn_later(place: Path, monkeypatch, stage: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stage, fail)
        stopped(
            release(), "what was paid for is kept", "consilience resume out.partial --table TABLE"
        )
    assert set(os.listdir(place)) == HERE | {"l", "out.partial"}
    stopped(release(), "was paid for and not finished", "resume out.partial --table TABLE")
    stopped(run("resume", "out.partial"), "the table is needed to draw the rest")
    done = run("resume", "out.partial", "--table", "people.csv", "-q")
    assert done.exit_code == 0, done.output
    assert set(os.listdir(place)) == HERE | {"l", "out"}
    assert spent(place) == 1


def test_a_defect_is_shown_in_full_and_says_what_is_kept(place: Path, monkeypatch) -> None:
    def fail(*words, **more):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(STAGES["reconstructing"], fail)
    done = release()
    assert isinstance(done.exception, ZeroDivisionError)
    kept = "what was paid for is kept, finish it with: consilience resume out.partial"
    assert done.exception.__notes__ == [kept]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_can_be_resumed(place: Path, monkeypatch, mechanism: str) -> None:
    own = [f"{k}=2" for k in ("rounds", "restarts") if k in MECHANISMS[mechanism].options]
    words = ("--mechanism", mechanism, *(w for o in own for w in ("-o", o)), "--errors", "none")
    words += ("--workload", "sex,age;sex,member")

    def full(*words, **more):
        raise full_disk()

    with monkeypatch.context() as patch:
        patch.setattr(release_folder, "_manifest", full)
        stopped(release(*words), "no space left", "consilience resume")
    left = read_unfinished(place / "out.partial")
    order = Order.restore(read_schema(place / "people.toml"), left.order, None, {}, None, None)
    ready = order.mechanism.calibrate(order.budget)
    kept = left.release(ready)
    assert isinstance(kept, SelectionRelease) == (mechanism in ("fem", "dual-query"))
    done = run("resume", "out.partial", "-q")
    assert done.exit_code == 0, done.output
    model = read_release(place / "out").model
    again = ready.reconstruct(kept).model
    np.testing.assert_allclose(model.marginal(("sex", "age")), again.marginal(("sex", "age")))
    assert spent(place) == 1


@pytest.mark.parametrize("at", ["choosing", "fitting"])
def test_rounds_that_were_drawn_are_kept(place: Path, monkeypatch, at: str) -> None:
    """The third round is stopped before it draws, or after: what was drawn until then is in the release."""
    seen = []
    inside = Run._choose if at == "choosing" else Run._report

    def stop(self, *words):
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return inside(self, *words)

    monkeypatch.setattr(Run, inside.__name__, stop)
    words = ("--mechanism", "aim", "--errors", "none") if at == "fitting" else ()
    words = words or ("--mechanism", "mwem", "-o", "rounds=4", "--errors", "none")
    stopped(release(*words), "interrupted", "consilience resume out.partial")
    kept = read_unfinished(place / "out.partial").about["measurements"]
    assert len(kept) == 2 if at == "choosing" else len(kept) >= 3
    assert run("resume", "out.partial", "-q").exit_code == 0
    assert len(read_release(place / "out").facts["measurements"]) == len(kept)
    assert spent(place) == 1


def test_free_choices_can_be_changed(place: Path, monkeypatch) -> None:
    def fall(*words, **more):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(STAGES["reconstructing"], fall)
        release()
    (place / "out").mkdir()
    stopped(run("resume", "out.partial", "-q"), "must be a new folder, but 'out' exists")
    changes = ("--out", "other", "--consistency", "local", "--errors", "none", "--memory", "1 GB")
    assert run("resume", "out.partial", *changes, "-q").exit_code == 0
    published = read_release(place / "other")
    assert published.model.graph.kind == "saturated"
    assert published.facts["standard_errors"] == "none"
    assert not (place / "out.partial").exists()


def test_folders_that_can_not_be_resumed(place: Path, monkeypatch) -> None:
    stopped(run("resume", "nothing"), "must be a folder that an interrupted release left")
    stopped(run("resume", "."), "must be a folder that an interrupted release left")
    schema = read_schema(place / "people.toml")
    paid = release_paid.Paid.begin(place / "out", schema, {}, 0)
    stopped(run("resume", "out.partial"), "holds no measurements", "before noise was drawn")
    (paid.path / "paid.npz").write_bytes(b"broken")
    stopped(run("resume", "out.partial"), "must be as it was written")
    (paid.path / "paid.npz").unlink()
    stopped(release(), "another process is at work")
    paid.leave()
    assert release("--errors", "none").exit_code == 0, "an empty one is cleared away"
    (place / "other.partial").write_text("mine")
    done = run("release", *WORDS[:-3], "--out", "other", "-q")
    stopped(done, "'other.partial', which is something else")
    assert (place / "other.partial").read_text() == "mine"


def test_no_room_is_found_out_before_anything_is_spent(place: Path, monkeypatch) -> None:
    def full(*words):
        raise full_disk()

    monkeypatch.setattr(release_paid, "_fill", full)
    stopped(release(), "must fit the disk of 'out'", "nothing was spent")
    assert set(os.listdir(place)) == HERE


# -- real processes ---------------------------------------------------------------------------------


def process(place: Path, *code: str, limit: int | None = None, words=WORDS) -> subprocess.Popen:
    """The command in a process of its own, after some lines of code; no file longer than the limit."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    lines = [
        "import os, signal, sys",
        *code,
        f"sys.argv = {['consilience', 'release', *map(str, words)]!r}",
        "import consilience_start; consilience_start.main()",
    ]
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=place,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


KILLED = "import {0}; {0}.{1} = lambda *a, **k: os.kill(os.getpid(), signal.SIG{2})"


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_killed_release_is_resumed(place: Path, name: str) -> None:
    """The process dies, or is asked to end, while the folder is being made."""
    code = KILLED.format("consilience.release.folder", "_manifest", name)
    ended = process(place, code, words=(*WORDS, "--errors", "none"))
    _, said = ended.communicate(timeout=120)
    if name == "KILL":
        assert ended.returncode == -signal.SIGKILL
        assert "draft" in os.listdir(place / "out.partial")
    else:
        assert ended.returncode == 2
        assert "interrupted; what was paid for is kept" in said
    assert set(os.listdir(place)) == HERE | {"l", "out.partial"}
    assert run("resume", "out.partial", "-q").exit_code == 0
    assert set(os.listdir(place)) == HERE | {"l", "out"}
    assert spent(place) == 1


PIECES = """
import consilience.mechanisms.fixed as fixed, consilience.release.drawn as drawn
fixed._BATCH = 1
real, seen = drawn.TapeOnDisk.keep, []
def keep(self, piece):
    seen.append(piece)
    if len(seen) == 3 and {before}: os.kill(os.getpid(), signal.SIGKILL)
    real(self, piece)
    if len(seen) == 3: os.kill(os.getpid(), signal.SIGKILL)
drawn.TapeOnDisk.keep = keep
"""
"""Every table is a piece of its own; the process dies before its third piece is on disk, or just after."""

DRAWN = [
    ("gaussian", (), True),
    ("gaussian", (), False),
    ("residual-planner", (), False),
    ("mwem", ("-o", "rounds=5"), False),
    ("aim", (), True),
    ("fem", ("-o", "rounds=5"), False),
    ("dual-query", ("-o", "rounds=5"), True),
]


@pytest.mark.parametrize(("mechanism", "own", "before"), DRAWN)
def test_killed_between_two_pieces(
    place: Path, monkeypatch, mechanism: str, own: tuple[str, ...], before: bool
) -> None:
    """What was drawn is what is published, the rest is drawn for the same payment, and nothing is drawn twice."""
    monkeypatch.setattr("consilience.mechanisms.fixed._BATCH", 1)
    words = (*WORDS, "--mechanism", mechanism, *own, "--errors", "none", "--workload", "2")
    ended = process(place, PIECES.format(before=before), words=words)
    ended.communicate(timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert spent(place) == 1
    drawn, _ = read_pieces(place / "out.partial")
    assert len(drawn) == (2 if before else 3)
    if mechanism not in ("mwem", "aim"):
        stopped(run("resume", "out.partial"), f"after {len(drawn)} pieces", "--table TABLE")
    asked, real = [], TapeOnDisk.keep
    monkeypatch.setattr(
        TapeOnDisk, "keep", lambda tape, piece: (asked.append(piece), real(tape, piece))
    )
    seen = []
    monkeypatch.setattr(release_run, "write_release", _watched(seen))
    done = run("resume", "out.partial", "--table", "people.csv", "-q")
    assert done.exit_code == 0, done.output
    assert spent(place) == 1
    assert set(os.listdir(place)) == HERE | {"l", "out"}
    assert asked, "the rest was drawn"
    if mechanism in ("fem", "dual-query"):
        assert len(drawn) + len(asked) == (5 if mechanism == "fem" else 4)
        return
    if mechanism in ("mwem", "aim"):
        cost = Cost.sum(Neighbours.REPLACE_ONE, map(cost_of, [*drawn, *asked]))
        assert cost.rho <= Ledger(place / "l").read().spent.rho
    published = seen[0]
    assert len(published) == len(drawn) + len(asked)
    for measured, piece in zip(published, [*drawn, *asked], strict=True):
        if mechanism in ("mwem", "aim", "gaussian"):
            np.testing.assert_array_equal(measured.values.ravel(), piece["values"].ravel())
    assert {m.values.size for m in published} >= {p["values"].size for p in drawn}


def cost_of(piece: Piece) -> Cost:
    about = json.loads(piece["about"].tobytes())
    selection = None if about["selection"] is None else Epsilon(Fraction(about["selection"]))
    assert about["law"] == "gaussian"
    return Ask((), Sigma(float.fromhex(about["width"])), selection).cost(Neighbours.REPLACE_ONE)


def _watched(seen: list[object]) -> Callable[..., object]:
    def write(*words, measurements, **more):
        seen.append(measurements)
        return real(*words, measurements=measurements, **more)

    real = release_run.write_release
    return write


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_the_payment(place: Path, moment: str) -> None:
    """The ledger alone says whether it was paid: before it is committed nothing was, after it nothing is lost."""
    name = "Payment.write" if moment == "before" else "TapeOnDisk.pay"
    code = (
        "import consilience.release.drawn as drawn",
        f"real = drawn.{name}",
        f"drawn.{name} = lambda *a: (real(*a), os.kill(os.getpid(), signal.SIGKILL))",
    )
    ended = process(place, *code, words=(*WORDS, "--errors", "none"))
    ended.communicate(timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert (place / "out.partial" / "payment.json").exists()
    if moment == "before":
        assert spent(place) == 0
        stopped(
            run("resume", "out.partial", "--table", "people.csv", "-q"), "holds no measurements"
        )
        assert release("--errors", "none").exit_code == 0
    else:
        assert spent(place) == 1
        (place / "l").rename(place / "moved")
        stopped(
            run("resume", "out.partial", "--table", "people.csv", "-q"), "there is no ledger at"
        )
        words = ("--table", "people.csv", "--ledger", "moved")
        assert run("resume", "out.partial", *words).exit_code == 0
        (place / "moved").rename(place / "l")
    assert spent(place) == 1
    assert set(os.listdir(place)) == HERE | {"l", "out"}


def test_the_rest_is_drawn_from_the_same_table_for_the_same_payment(
    place: Path, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("consilience.mechanisms.fixed.add_noise", fail)
        release()
    rows = (place / "people.csv").read_text().splitlines(keepends=True)
    (place / "fewer.csv").write_text("".join(rows[:-1]))
    table = ("--table", "people.csv", "-q")
    stopped(
        run("resume", "out.partial", "--table", "fewer.csv", "-q"), "must be the one that was paid"
    )
    asked = place / "out.partial" / "asked.json"
    text = asked.read_text()
    asked.write_text(text.replace('"epsilon": "2"', '"epsilon": "20"'))
    assert asked.read_text() != text
    stopped(run("resume", "out.partial", *table), "must ask for what was paid for")
    asked.write_text(text)
    payment = place / "out.partial" / "payment.json"
    note = json.loads(payment.read_text())
    payment.write_text(json.dumps({**note, "digest": "0" * 64}))
    stopped(run("resume", "out.partial", *table), "holds no measurements")
    (place / "l").rename(place / "moved")  # now nobody can tell
    elsewhere = ("--ledger", "moved")
    stopped(run("resume", "out.partial", *table, *elsewhere), "must hold the payment")
    (place / "moved").rename(place / "l")
    payment.write_text("{}")
    stopped(run("resume", "out.partial", *table), "must be as it was written")
    payment.write_text(json.dumps(note))
    assert run("resume", "out.partial", *table).exit_code == 0
    assert spent(place) == 1


def test_a_torn_piece_is_drawn_again(tmp_path: Path) -> None:
    tape = TapeOnDisk(tmp_path, {})
    for value in range(3):
        tape.keep({"values": np.full(4, value)})
    whole = (tmp_path / "drawn.bin").read_bytes()
    for cut in (1, 20, len(whole) // 3 - 1):
        (tmp_path / "drawn.bin").write_bytes(whole[:-cut])
        assert len(read_pieces(tmp_path)[0]) == 2
    (tmp_path / "drawn.bin").write_bytes(whole[:-9] + bytes(9))  # zeros, as a disk may leave
    again = TapeOnDisk(tmp_path, {}, paid=True)
    assert [int(p["values"][0]) for p in again.pieces] == [0, 1]
    again.keep({"values": np.full(4, 7)})
    assert [int(p["values"][0]) for p in read_pieces(tmp_path)[0]] == [0, 1, 7]


@pytest.mark.slow
def test_a_disk_that_takes_no_long_files(place: Path) -> None:
    """The system itself refuses to write, before the payment and after it."""
    early = process(place, limit=300_000)
    _, said = early.communicate(timeout=120)
    assert (early.returncode, "nothing was spent" in said) == (2, True)
    assert set(os.listdir(place)) == HERE
    code = (
        "import resource, consilience.release.run as f",
        "write, f.write_release = f.write_release, lambda *a, **k: "
        "(resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)), write(*a, **k))",
    )
    late = process(place, *code, words=(*WORDS, "--errors", "none"))
    _, said = late.communicate(timeout=120)
    assert late.returncode == 2, said
    assert len(said.strip().splitlines()) == 1
    assert "File too large" in said
    assert "consilience resume out.partial" in said
    assert set(os.listdir(place)) == HERE | {"l", "out.partial"}
    assert run("resume", "out.partial", "-q").exit_code == 0
    assert spent(place) == 1


@pytest.mark.parametrize("wait", [0.2, 0.7])
def test_ctrl_c_while_the_command_is_still_loading(place: Path, wait: float) -> None:
    code = f"threading.Timer({wait}, os.kill, (os.getpid(), signal.SIGINT)).start()"
    started = process(place, "import threading", code)
    _, said = started.communicate(timeout=120)
    assert started.returncode == 2
    assert said.startswith("consilience: interrupted; nothing was written")
    assert len(said.strip().splitlines()) == 1
    assert not (place / "out").exists()


# -- what else may be at work, or have been at it ----------------------------------------------------


def fail(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_what_is_resumed_must_be_what_was_paid_for(place: Path, monkeypatch) -> None:
    """With epsilon edited afterwards the folder would state a noise that the measurements do not have."""
    with monkeypatch.context() as broken:
        broken.setattr("consilience.model.model.Model.save", fail)
        assert release().exit_code == 2
    asked = place / "out.partial" / "asked.json"
    order = json.loads(asked.read_text())
    order["budget"]["epsilon"] = "1/100"
    asked.write_text(json.dumps(order))
    refused = run("resume", "out.partial")
    assert refused.exit_code == 2
    assert "must ask for what was paid for" in refused.stderr
    assert not (place / "out").exists()
    order["budget"]["epsilon"] = "2"
    asked.write_text(json.dumps(order))
    assert run("resume", "out.partial").exit_code == 0


def test_two_releases_to_one_folder_do_not_meet(place: Path, monkeypatch) -> None:
    other = []

    def meanwhile(*args: object, **options: object) -> object:
        if not other:
            other.append(release())
        return real(*args, **options)

    real = release_run._measure
    monkeypatch.setattr(release_run, "_measure", meanwhile)
    first = release()
    assert first.exit_code == 0, first.output
    stopped(other[0], "another process is at work on", "nothing was spent")
    assert spent(place) == 1


@pytest.mark.parametrize("make", [copy.deepcopy, copy.copy, pickle.dumps], ids=lambda f: f.__name__)
def test_a_running_release_is_neither_copied_nor_pickled(make) -> None:
    domain = Domain({"a": 2, "b": 2})
    data = Dataset(np.zeros((50, 2), int), domain)
    ready = MWEM(all_marginals(domain, 2), rounds=1).calibrate(
        Budget(rho=1, neighbours="replace-one")
    )
    running = ready.start(data, noise=SeededNoise(seed=1))
    with pytest.raises(ConsilienceError, match="cannot be copied or written to a file"):
        make(running)
    assert len([*running]) == 1
