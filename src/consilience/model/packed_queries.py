"""Queries as files keep them: records in JSON and arrays, each query once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from consilience.domain.levels import Level
from consilience.errors import ConsilienceError, ModelFileError
from consilience.measurements import (
    Centring,
    Coarsened,
    Dense,
    Identity,
    Kronecker,
    Prefix,
    Query,
    Ranges,
    Sparse,
)
from consilience.measurements.structured import Permuted
from consilience.model.keeping import Arrays


class QueryWriter:
    """Collects queries; one object is stored once."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.arrays: Arrays = {}
        self._known: dict[int, tuple[int, Query]] = {}

    def add(self, query: Query) -> int:
        """The position of the query's record."""
        found = self._known.get(id(query))
        if found is None:
            record = self._record(query)
            self.records.append(record)
            found = len(self.records) - 1, query  # held, so that its id stays its own
            self._known[id(query)] = found
        return found[0]

    def _record(self, query: Query) -> dict[str, Any]:
        match query:
            case Identity() | Prefix():
                return {"kind": type(query).__name__, "size": query.size}
            case Ranges():
                return {
                    "kind": "Ranges",
                    "size": query.size,
                    "intervals": self._keep(query.intervals),
                }
            case Dense():
                return {"kind": "Dense", "matrix": self._keep(query.matrix)}
            case Sparse():
                m = query.matrix
                parts = [self._keep(np.asarray(p)) for p in (m.data, m.indices, m.indptr)]
                return {"kind": "Sparse", "shape": list(query.shape), "parts": parts}
            case Centring():
                return {"kind": "Centring", "sizes": list(query.sizes)}
            case Kronecker():
                return {"kind": "Kronecker", "factors": [self.add(f) for f in query.factors]}
            case Coarsened():
                return {
                    "kind": "Coarsened",
                    "of": self.add(query.of),
                    "table": list(query.table),
                    "levels": [None if v is None else v.name for v in query.levels],
                }
            case Permuted():
                return {
                    "kind": "Permuted",
                    "query": self.add(query.query),
                    "table": list(query.table),
                    "axes": list(query.axes),
                }
        raise ModelFileError(
            f"a saved model must have queries that are numbers, got {query!r}, which is code; "
            "give the query as a matrix, Prefix, Ranges or Kronecker"
        )

    def _keep(self, array: NDArray[Any]) -> str:
        name = f"query_{len(self.arrays)}"
        self.arrays[name] = array
        return name


class QueryReader:
    """Queries by position, each made when first asked for."""

    def __init__(
        self,
        records: Sequence[Any],
        arrays: Mapping[str, NDArray[Any]],
        levels: Mapping[str, Level] | None = None,
    ) -> None:
        self._levels = levels or {}
        self._records = records
        self._arrays = arrays
        self._made: dict[int, Query] = {}

    def __getitem__(self, k: int) -> Query:
        if k not in self._made:
            self._made[k] = self._query(k, self._records[k])
        return self._made[k]

    def _below(self, k: int, part: int) -> Query:
        if (
            not 0 <= part < k
        ):  # a writer stores parts first; anything else could go round in circles
            raise ConsilienceError("a query refers to one that comes later")
        return self[part]

    def _query(self, k: int, record: dict[str, Any]) -> Query:
        arrays = self._arrays
        match record["kind"]:
            case "Identity":
                return Identity(record["size"])
            case "Prefix":
                return Prefix(record["size"])
            case "Ranges":
                return Ranges(record["size"], arrays[record["intervals"]])
            case "Dense":
                return Dense(arrays[record["matrix"]])
            case "Sparse":
                data, indices, starts = (arrays[p] for p in record["parts"])
                matrix = sparse.csr_array((data, indices, starts), shape=tuple(record["shape"]))
                matrix.check_format(full_check=True)
                return Sparse(matrix)
            case "Centring":
                return Centring(tuple(int(n) for n in record["sizes"]))
            case "Kronecker":
                return Kronecker([self._below(k, f) for f in record["factors"]])
            case "Coarsened":
                levels = tuple(None if n is None else self._levels[n] for n in record["levels"])
                of = self._below(k, record["of"])
                found = Coarsened(tuple(int(n) for n in record["table"]), levels, of)
                if prod(found.coarse) != of.cells:
                    raise ConsilienceError("a query does not fit its levels")
                return found
            case "Permuted":
                table, axes = tuple(record["table"]), tuple(record["axes"])
                if sorted(axes) != list(range(len(table))):
                    raise ConsilienceError("the axes of a query are no permutation")
                return Permuted(self._below(k, record["query"]), table, axes)
        raise ConsilienceError(f"a query of kind {record['kind']!r} is unknown")
