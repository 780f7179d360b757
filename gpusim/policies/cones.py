"""Linear and second-order cone programs, solved by an interior-point method (the extra `lp`)."""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.policies.clusters import F64, I64

SOLVED = (0, 10)  # of ECOS; 10: not to the last digit


class ConeProgram:
    """minimise cost . z, where each block of rows bounds z.

    many  variables
    """

    def __init__(self, many: int) -> None:
        self.many = many
        self._rows, self._cones = 0, 0
        self._triples: list[tuple[I64, I64, F64]] = []
        self._bounds: list[F64] = []

    def below(self, rows: I64, columns: I64, values: F64, bounds: F64) -> None:
        """For each row: the sum of values times variables is at most the bound.  Not after `hyperbolas`."""
        assert not self._cones
        self._add(rows, columns, values, bounds)

    def hyperbolas(self, inverse: I64, rows: I64, columns: I64, values: F64) -> None:
        """For each row: the variable `inverse` is at least 1 over the sum of values times variables, which is positive.

        u q >= 1 is the cone |(q - u, 2)| <= q + u; the rows of one cone follow each other.
        """
        many = len(inverse)
        at = 3 * np.arange(many)
        cone = np.concatenate([at, at + 1, 3 * rows, 3 * rows + 1])
        place = np.concatenate([inverse, inverse, columns, columns])
        value = np.concatenate([np.full(many, -1.0), np.ones(many), -values, -values])
        self._add(cone, place, value, np.tile([0.0, 0.0, 2.0], many))
        self._cones += many

    def _add(self, rows: I64, columns: I64, values: F64, bounds: F64) -> None:
        self._triples.append((rows + self._rows, columns, values))
        self._bounds.append(bounds)
        self._rows += len(bounds)

    def solve(self, cost: F64) -> F64 | None:
        """The variables; None: no z keeps all bounds.  Raises GpusimError without the extra."""
        try:
            import _ecos  # `ecos.solve` only takes a matrix of scipy apart, which costs as much as to solve a small program
        except ImportError:
            said = "this scheduler solves a program over shares, which needs ECOS"
            raise GpusimError(said, hint="pip install 'gpusim[lp]'") from None
        rows, columns, values = (np.concatenate(part) for part in zip(*self._triples, strict=True))
        there = np.flatnonzero(values)
        order = there[np.argsort((columns * self._rows + rows)[there])]  # no place is there twice
        begins = np.zeros(self.many + 1, np.int32)
        np.cumsum(np.bincount(columns[order], minlength=self.many), out=begins[1:])
        shape, matrix = (self._rows, self.many, 0), (values[order], rows[order].astype(np.int32), begins)
        cones = {"l": self._rows - 3 * self._cones, "q": [3] * self._cones}
        found = _ecos.csolve(shape, cost, *matrix, np.concatenate(self._bounds), cones, verbose=False)
        return np.array(found["x"]) if found["info"]["exitFlag"] in SOLVED else None
