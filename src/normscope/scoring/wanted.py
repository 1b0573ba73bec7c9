"""Which columns of a file are meant."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from normscope._checks import invalid


@dataclass(frozen=True)
class Wanted:
    """The columns, members or tensors that are read.

    Attributes:
        column: of the embeddings; None finds it.
        id: of the ids; None takes `id` if there is one.
        text: of strings that a page shows; None for none.
        covariates: of numbers that the norm may depend on.
        split: which embeddings of a run, or of a dataset with splits.
    """

    column: str | None = None
    id: str | None = None
    text: str | None = None
    covariates: tuple[str, ...] = ()
    split: Literal["train", "test"] = "test"

    def id_among(self, names: Collection[str]) -> str | None:
        """The column of ids: the one asked for, else `id` if it is there.

        >>> Wanted().id_among(["id", "e0"]), Wanted().id_among(["e0"])
        ('id', None)
        """
        return self.id or ("id" if "id" in names else None)

    def check(self, path: str, names: Collection[str]) -> None:
        """Refuse a file without one of the columns asked for."""
        for name in (self.column, self.id, self.text, *self.covariates):
            if name is not None and name not in names:
                has = f"It has {', '.join(map(str, list(names)[:20])) or 'none'}."
                raise invalid(path, f"a file with {name!r}", "none", has)

    def beside(self) -> set[str]:
        """The columns beside the embeddings that are asked for."""
        return {name for name in (self.id, self.text, *self.covariates) if name is not None}


def chosen(path: str, names: Collection[str], fitting: list[str], usual: Collection[str]) -> str:
    """The embeddings' name: the first of the usual ones that is there, or the only fitting one.

    >>> chosen("z.npz", ["embeddings", "features"], ["embeddings", "features"], ["embeddings"])
    'embeddings'
    """
    for name in usual:
        if name in names:
            return name
    if len(fitting) == 1:
        return fitting[0]
    constraint = f"a file with {next(iter(usual))}, or one floating array (n, d)"
    shown = ", ".join(sorted(names)[:8]) or "nothing"
    raise invalid(path, constraint, shown, "Choose one with --column, in Python column=.")
