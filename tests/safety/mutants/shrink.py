"""The simplest mutant with the same fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.safety.mutants.edits import CannotWriteError, edited
from tests.safety.mutants.mutation import Mutant
from tests.safety.mutants.originals import simpler


def shrunk(mutant: Mutant, is_alike: Callable[[Mutant], bool]) -> Mutant:
    """``mutant`` with fewer edits, or of a simpler network, as long as what comes out ``is_alike``."""
    for candidate in _simpler(mutant):
        if is_alike(candidate):
            return shrunk(candidate, is_alike)
    return mutant


def _simpler(mutant: Mutant) -> Iterator[Mutant]:
    choices = [(mutant.original, (edit,)) for edit in mutant.edits if len(mutant.edits) > 1]
    choices += [(original, mutant.edits) for original in simpler(mutant.original)]
    for original, edits in choices:
        try:
            yield Mutant(original, edits, edited(original.data, edits))
        except CannotWriteError:  # the simpler network has no such field
            continue
