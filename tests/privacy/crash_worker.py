"""Forks releases that the crash tests kill or race; run as a script, driven over stdin.

`kill MODE LEDGER LOG` forks a child that releases over and over and prints its pid.
`race MODE LEDGER COUNT` forks COUNT children that reserve at the same moment, prints the successes.
`wait` waits for all children.
"""

import os
import sys
import time

import consilience.privacy.ledger as ledger_module
from consilience.errors import InsufficientBudgetError
from consilience.privacy import Cost, Ledger, Neighbours, Scale, SecureNoise, marginals

ONE = marginals(Neighbours.REPLACE_ONE)
SCALE = Scale(2000)
COST = Cost.laplace(ONE, SCALE)


def release_forever(mode: str, path: str, log: str) -> None:
    """Reserve, draw, publish (one line in the log). Mode `late` is the planted fault: pay last."""
    ledger, noise = Ledger(path, table="people"), SecureNoise(workers=1)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        if mode == "right":
            ledger.reserve(COST, "release")
        values = noise.discrete_laplace([3, 1, 4], SCALE).values
        os.write(out, f"{values.tolist()}\n".encode())
        if mode == "late":
            ledger.reserve(COST, "release")


def reserve_once(mode: str, path: str, start: int) -> int:
    """Exit status 0 if the reservation succeeded. Mode `torn`: look first, then spend unchecked."""
    ledger = Ledger(path, table="people")
    os.read(start, 1)  # returns when the parent closes its end: all children go at once
    try:
        if mode == "torn":
            ledger.check(COST)
            time.sleep(0.01)
            ledger_module._refuse_beyond = lambda account, cost: None
        ledger.reserve(COST, "race")
    except InsufficientBudgetError:
        return 3
    return 0


def race(mode: str, path: str, count: int) -> int:
    read_end, write_end = os.pipe()
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            status = 1
            try:
                status = reserve_once(mode, path, read_end)
            finally:
                os._exit(status)
        children.append(pid)
    time.sleep(0.02)
    os.close(read_end)
    os.close(write_end)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if set(codes) - {0, 3}:
        raise RuntimeError(f"a racing child failed: {codes}")
    return codes.count(0)


def main() -> None:
    for line in sys.stdin:
        command, *words = line.split()
        if command == "kill":
            pid = os.fork()
            if pid == 0:
                try:
                    release_forever(*words)
                finally:
                    os._exit(1)
            print(pid, flush=True)
        elif command == "race":
            print(race(words[0], words[1], int(words[2])), flush=True)
        else:
            os.wait()
            print("gone", flush=True)


if __name__ == "__main__":
    main()
