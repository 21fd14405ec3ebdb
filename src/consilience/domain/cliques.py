"""Families of attribute sets as integer arrays: a million cliques without a Python object for each.

A `Family` is sets of numbers, `Cliques` the same as attributes of a domain. Both read like a tuple of tuples, which are made when
they are asked for; what is done with whole families is done on the arrays, all sets of one size at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations, pairwise
from operator import index
from typing import Any, Generic, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domain import Clique, Domain
from consilience.domain.rows import Ints, Rows, grouped, row_keys, rows_of, starts
from consilience.errors import DomainError

Item = TypeVar("Item", bound=tuple)
ENUMERATED_RANK = 12
"""Sets of up to this many attributes are looked into by enumerating their subsets (2^rank each), wider ones pair by pair."""


# -- families ----------------------------------------------------------------------------------------


class Lazy(Sequence[Item], Generic[Item]):
    """A sequence of tuples that are made when they are asked for; equal to any sequence of the same tuples."""

    def _item(self, i: int) -> Item:
        raise NotImplementedError

    def _items(self) -> Iterable[Item]:
        raise NotImplementedError

    @overload
    def __getitem__(self, i: SupportsIndex) -> Item: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> Item | tuple[Item, ...]:
        if "listed" in self.__dict__ or isinstance(i, slice):
            return self.listed[i]
        at = index(i)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} of them, got number {i}")
        return self._item(at)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.listed)

    @cached_property
    def listed(self) -> tuple[Item, ...]:
        """All of them as Python tuples: for loops over few."""
        return tuple(self._items())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Sequence) and self.listed == tuple(other)

    def __hash__(self) -> int:
        return hash(self.listed)

    def __repr__(self) -> str:
        return repr(self.listed) if len(self) <= 20 else f"({self[0]!r}, ... {len(self):,} in all)"


class Family(Lazy[tuple[int, ...]]):
    """Sets of small numbers that are not negative: set i is flat[ptr[i]:ptr[i + 1]], in the order in which it is given."""

    def __init__(self, flat: NDArray[Any], ptr: Ints) -> None:
        self.flat: Rows = np.asarray(flat, np.int32)
        self.ptr = np.asarray(ptr, np.int64)

    @classmethod
    def of(cls, sets: Iterable[Iterable[int]]) -> Family:
        if isinstance(sets, Family):
            return sets
        listed = [tuple(s) for s in sets]
        flat = np.fromiter(chain.from_iterable(listed), np.int32)
        return cls(flat, starts([len(s) for s in listed]))

    @classmethod
    def of_rows(cls, rows: NDArray[Any]) -> Family:
        """Sets of one size, one per row."""
        count, rank = rows.shape
        return cls(np.ascontiguousarray(rows, np.int32).reshape(-1), np.arange(count + 1) * rank)

    @classmethod
    def joined(cls, parts: Iterable[Family]) -> Family:
        """One family after the other."""
        listed = [p for p in parts if len(p)]
        flat = np.concatenate([np.zeros(0, np.int32), *(p.flat for p in listed)])
        return cls(flat, starts(np.concatenate([np.zeros(0, int), *(p.ranks for p in listed)])))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Family):
            return np.array_equal(self.ptr, other.ptr) and np.array_equal(self.flat, other.flat)
        return super().__eq__(other)

    __hash__ = Lazy.__hash__

    def _item(self, i: int) -> tuple[int, ...]:
        return tuple(self.flat[self.ptr[i] : self.ptr[i + 1]].tolist())

    def _items(self) -> Iterable[tuple[int, ...]]:
        flat, ptr = self.flat.tolist(), self.ptr.tolist()
        return (tuple(flat[a:b]) for a, b in pairwise(ptr))

    @cached_property
    def ranks(self) -> Ints:
        """How many members each set has."""
        return np.diff(self.ptr)

    @cached_property
    def by_rank(self) -> Mapping[int, tuple[Ints, Rows]]:
        """For each number of members, the most first: which sets have it, and these sets as rows."""
        found: dict[int, tuple[Ints, Rows]] = {}
        for where in reversed(grouped(self.ranks)):
            rank = int(self.ranks[where[0]])
            cells = (
                self.flat
                if len(where) == len(self)
                else self.flat[self.ptr[where][:, None] + np.arange(rank)]
            )
            found[rank] = where, cells.reshape(len(where), rank)
        return found

    def take(self, which: NDArray[Any]) -> Family:
        """Some of the sets, in the order asked for."""
        if len(which) == len(self) and np.array_equal(which, np.arange(len(self))):
            return self
        ranks = self.ranks[which]
        ptr = starts(ranks)
        at = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][which] - ptr[:-1], ranks)
        return Family(self.flat[at], ptr)

    def renamed(self, names: NDArray[Any]) -> Family:
        """Every member i becomes names[i]; all families with these sizes in this order share `ptr`."""
        return Family(names[self.flat], self.ptr)

    @property
    def ascends(self) -> bool:
        """Whether the members of each set are in ascending order, each once."""
        return not self.descents().any()

    def descents(self) -> NDArray[np.bool_]:
        """Which sets are not in ascending order."""
        found = np.zeros(len(self), bool)
        step = np.flatnonzero(np.diff(self.flat) <= 0)
        owner = np.searchsorted(self.ptr, step, side="right") - 1
        found[owner[step + 1 < self.ptr[owner + 1]]] = True
        return found

    def sorted(self) -> Family:
        """The members of each set in ascending order."""
        if self.ascends:
            return self
        return Family(self.flat[np.lexsort((self.flat, self._owner))], self.ptr)

    def argsort(self) -> Family:
        """For each set the places of its members in ascending order: the axes that bring a table over it into that order."""
        owner = self._owner
        return Family(np.lexsort((self.flat, owner)) - self.ptr[owner], self.ptr)

    @property
    def _owner(self) -> Ints:
        return np.repeat(np.arange(len(self)), self.ranks)

    def products(self, sizes: NDArray[Any]) -> Ints:
        """For each set the product of its members' sizes, as long as it is below ROOM."""
        out = np.ones(len(self), np.int64)
        for where, rows in self.by_rank.values():
            each = np.asarray(sizes, np.int64)[rows]
            if len(each) and np.log2(np.maximum(each, 1)).sum(axis=1).max() >= 62:
                shape = each[np.log2(np.maximum(each, 1)).sum(axis=1).argmax()]
                raise DomainError(
                    f"a table must fit in memory, got one of shape {tuple(shape.tolist())}; use smaller cliques"
                )
            out[where] = each.prod(axis=1)
        return out

    # -- looking up ------------------------------------------------------------------------------

    @cached_property
    def _ascending(self) -> Mapping[int, tuple[Ints, Rows]]:
        """`by_rank` with the rows of each in ascending order, and of equal ones only the first."""
        found: dict[int, tuple[Ints, Rows]] = {}
        for rank, (where, rows) in self.by_rank.items():
            keys = row_keys(rows)
            if not (np.diff(keys) > 0).all():
                _, first = np.unique(keys, return_index=True)
                where, rows = where[first], rows[first]
            found[rank] = where, rows
        return found

    def find(self, wanted: Family) -> Ints:
        """For each wanted set the first one of ours that equals it; -1 where none does. Members must ascend in both."""
        out = np.full(len(wanted), -1, np.int64)
        for rank, (where, rows) in wanted.by_rank.items():
            if rank in self._ascending:
                ids, mine = self._ascending[rank]
                place = rows_of(mine, rows)
                out[where] = np.where(place >= 0, ids[place], -1)
        return out

    def first_of_each(self) -> Ints:
        """The positions at which a set occurs for the first time, ascending. Members must ascend."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.sort(np.concatenate([where for where, _ in self._ascending.values()]))

    def maximal(self) -> Ints:
        """The positions of sets that no other one contains, of equal ones the first. Members must ascend."""
        first = self.first_of_each()
        inside = np.zeros(len(self), bool)
        by_rank = self.take(first).by_rank
        for wide, (_, rows) in by_rank.items():
            for rank, (where, small) in by_rank.items():
                if rank < wide:
                    inside[first[where]] |= _contained(small, rows)
        return first[~inside[first]]


def _contained(small: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Which of the small rows lie inside some of the wider ones."""
    rank, wide = small.shape[1], rows.shape[1]
    if wide <= ENUMERATED_RANK:
        keys = np.argsort(row_keys(small), kind="stable")
        hit = np.zeros(len(small), bool)
        for columns in combinations(range(wide), rank):
            place = rows_of(small[keys], rows[:, list(columns)])
            hit[keys[place[place >= 0]]] = True
        return hit
    holders = Holders(Family.of_rows(rows))
    return np.array([bool(holders.of(s)) for s in small.tolist()], bool)


class Cliques(Lazy[Clique]):
    """Cliques of a domain: a tuple of tuples of names for those who read it, rows of positions (`sets`) for the rest."""

    def __init__(self, domain: Domain, sets: Family) -> None:
        self.domain = domain
        self.sets = sets

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[str | Iterable[str]]) -> Cliques:
        """Each as its canonical clique; nothing is left out and the order is kept."""
        if isinstance(cliques, Cliques) and (cliques.domain is domain or cliques.domain == domain):
            return cliques
        return cls(domain, Family.of(domain.axes(domain.clique(c)) for c in cliques))

    def __len__(self) -> int:
        return len(self.sets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cliques):
            same = self.domain.attributes == other.domain.attributes
            return self.sets == other.sets if same else self.listed == other.listed
        return super().__eq__(other)

    __hash__ = Lazy.__hash__

    def _item(self, i: int) -> Clique:
        names = self.domain.attributes
        return tuple([names[a] for a in self.sets[i]])

    def _items(self) -> Iterable[Clique]:
        names = self.domain.attributes
        flat = [names[a] for a in self.sets.flat.tolist()]
        ptr = self.sets.ptr.tolist()
        return (tuple(flat[a:b]) for a, b in pairwise(ptr))

    def take(self, which: NDArray[Any]) -> Cliques:
        found = self.sets.take(which)
        return self if found is self.sets else Cliques(self.domain, found)

    def distinct(self, *, empty: bool = True) -> Cliques:
        """Each once, in the order of first appearance; `empty` False leaves the empty clique out."""
        first = self.sets.first_of_each()
        return self.take(first if empty else first[self.sets.ranks[first] > 0])

    def maximal(self) -> Cliques:
        """Those that no other one contains, each once."""
        return self.take(self.sets.maximal())

    def find(self, wanted: Cliques) -> Ints:
        """For each wanted clique the number of the first one here that equals it, -1 where none does."""
        return self.sets.find(wanted.sets)

    @cached_property
    def sizes(self) -> Ints:
        """The number of cells of each clique's table."""
        return self.sets.products(np.array(self.domain.shape, np.int64))

    @cached_property
    def cells(self) -> int:
        """Of all tables, a Python integer of any length."""
        try:
            return int(self.sizes.sum())
        except DomainError:
            return sum(self.domain.size(c) for c in self)

    @cached_property
    def places(self) -> Mapping[Clique, int]:
        """The number of each clique, looked up when it is asked for."""
        return _Places(self)

    def __contains__(self, clique: object) -> bool:
        return clique in self.places

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        if start or stop is not None or value not in self.places:
            return self.listed.index(value, start, len(self) if stop is None else stop)
        return self.places[value]

    @cached_property
    def holders(self) -> Holders:
        return Holders(self)

    def first_outside(self, others: Cliques) -> Clique | None:
        """The first of these cliques, the empty one apart, that no other contains; None if there is none."""
        missing = np.flatnonzero((others.find(self) < 0) & (self.sets.ranks > 0))
        return next((self[i] for i in missing if not others.holders.of(self[i])), None)


class _Places(Mapping[Clique, int]):
    """The number of each clique. A few are searched for and remembered; who asks for more than one in a hundred gets them all."""

    def __init__(self, cliques: Cliques) -> None:
        self._cliques = cliques
        self._known: dict[Any, int] = {}
        self._searched = 0
        self._whole = False

    def __getitem__(self, clique: Clique) -> int:
        found = self._known.get(clique)
        if found is None:
            found = self._known[clique] = self._search(clique)
        if found < 0:
            raise KeyError(clique)
        return found

    def __contains__(self, clique: object) -> bool:
        try:
            return self[clique] >= 0  # pyright: ignore[reportArgumentType]
        except KeyError:
            return False

    def _search(self, clique: Clique) -> int:
        cliques = self._cliques
        self._searched += 1
        if 100 * self._searched > len(cliques) and not self._whole:
            self._whole = True
            self._known |= {c: i for i, c in reversed(list(enumerate(cliques)))}
        if self._whole:
            return self._known.get(clique, -1)
        if not isinstance(clique, tuple) or any(a not in self._cliques.domain for a in clique):
            return -1
        wanted = self._cliques.domain.axes(clique)
        return int(self._cliques.sets.find(Family.of([wanted]))[0])

    def __iter__(self) -> Iterator[Clique]:
        return iter(self._cliques)

    def __len__(self) -> int:
        return len(self._cliques)


class Holders:
    """An inverted index of a list of cliques. Attributes may be names or positions, as long as questions use the same."""

    def __init__(self, cliques: Iterable[Iterable[Hashable]]) -> None:
        number: dict[Any, int] | None = None
        if isinstance(cliques, Cliques):
            number, sets = {a: i for i, a in enumerate(cliques.domain)}, cliques.sets
        elif isinstance(cliques, Family):
            sets = cliques
        else:
            number = {}
            sets = Family.of([[number.setdefault(a, len(number)) for a in c] for c in cliques])
        self._number = number
        owner = np.repeat(np.arange(len(sets)), sets.ranks)
        self._count = len(sets)
        self._owners = owner[np.argsort(sets.flat, kind="stable")]
        self._ptr = starts(np.bincount(sets.flat))
        self._known: dict[Hashable, frozenset[int]] = {}

    def _of_one(self, attribute: Hashable) -> frozenset[int]:
        found = self._known.get(attribute)
        if found is None:
            at: Any = attribute if self._number is None else self._number.get(attribute, -1)
            inside = 0 <= at < len(self._ptr) - 1
            part = self._owners[self._ptr[at] : self._ptr[at + 1]].tolist() if inside else ()
            found = self._known[attribute] = frozenset(part)
        return found

    def of(self, attributes: Iterable[Hashable]) -> frozenset[int]:
        """The numbers of all cliques that hold every one of these attributes; all cliques hold the empty set."""
        sets = [self._of_one(a) for a in attributes]
        return frozenset.intersection(*sets) if sets else frozenset(range(self._count))

    def touching(self, attributes: Iterable[Hashable]) -> frozenset[int]:
        """The numbers of all cliques that hold at least one of these attributes."""
        return frozenset().union(*(self._of_one(a) for a in attributes))

    def smallest(
        self, attributes: Iterable[Hashable], sizes: Sequence[int] | NDArray[Any]
    ) -> int | None:
        """Among the cliques that hold these attributes the one of least size, the first of equals; None if none does."""
        return min(self.of(attributes), key=lambda i: (sizes[i], i), default=None)
