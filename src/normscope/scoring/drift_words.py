"""What is said of drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normscope._files import without_nan

if TYPE_CHECKING:
    from normscope.scoring.drift import Drift, Quantity, Window

TEST = (
    "Two-sample Kolmogorov-Smirnov tests of each later window against the first, one for each "
    "quantity, with Holm's correction over all of them: without drift, the chance of any false "
    "alarm is 5 % at most if rows are drawn independently."
)
_SLIGHT, _STRONG = 0.1, 0.3  # of the distance of distribution functions


def verdict_of(found: Drift) -> str:
    """What drifts, by how much, and how sure that is."""
    first, *others = found.windows
    tests = [q for window in others for q in window.quantities.values()]
    if not found.drifts:
        least = min(q.p_corrected or 0.0 for q in tests)
        names = _listed([*others[0].quantities])
        many = f"{len(tests)} {'test' if len(tests) == 1 else 'tests'}"
        return (
            f"No drift was found in {names}: the smallest of {many} has a corrected p of "
            f"{least:.2g}."
        )
    said = []
    for name in others[0].quantities:
        moved = [w for w in others if w.quantities[name].drifts]
        if moved:
            worst = max(moved, key=lambda w: w.quantities[name].distance or 0.0)
            now = worst.quantities[name]
            where = f"in {len(moved)} of {len(others)} windows, most in {worst.name}"
            where = f"in {worst.name}" if len(others) == 1 else where
            said.append(f"{name} {size_of(now)} {where} ({change_in(first, now)})")
    return f"Drift: {'; '.join(said)}."


def change_in(first: Window, now: Quantity) -> str:
    """The median of the first window and of this one, the distance and its corrected p."""
    before = first.quantities.get(now.name)
    medians = f"median {now.median:+.2g} deviations"  # of the direction, which begins at 0
    if before is not None:
        medians = f"median {before.median:.4g} to {now.median:.4g}"
    return f"{medians}, distance {now.distance:.2f}, p {p_in_words(now)}"


def moment(time: float, *, clock: bool) -> str:
    """A time as a number; by the clock, seconds from 1970 as a date, with the hour if it has one.

    >>> moment(86400.0, clock=True), moment(90000.5, clock=True), moment(7.0, clock=False)
    ('1970-01-02', '1970-01-02 01:00', '7')
    """
    if not clock:
        return f"{time:.10g}"
    said = str(np.datetime64(int(time), "s")).replace("T", " ")
    return said.removesuffix(":00").removesuffix(" 00:00")


def size_of(quantity: Quantity) -> str:
    """How far it moved, in a word.

    Below a distance of .1 slightly, from .3 on strongly.
    """
    distance = quantity.distance or 0.0
    return "moved" + (" slightly" if distance < _SLIGHT else " strongly" * (distance >= _STRONG))


def p_in_words(quantity: Quantity) -> str:
    """The corrected p-value; very small ones are no more exact than their tail.

    >>> from normscope.scoring.drift import Quantity
    >>> p_in_words(Quantity("norm", (), 0.1, 0.01, 0.02))
    '0.02'
    """
    p = 1.0 if quantity.p_corrected is None else quantity.p_corrected
    return "< 1e-10" if p < 1e-10 else f"{p:.2g}"


def as_json(found: Drift) -> dict[str, Any]:
    """All of it, for a file."""
    windows = [
        {
            "name": w.name,
            "rows": w.rows,
            "drawn": w.drawn,
            "left_out": w.left_out,
            "drift": w.drifts,
            "quantities": {
                q.name: {
                    **dict(zip(("q05", "q25", "median", "q75", "q95"), q.levels, strict=True)),
                    "distance": q.distance,
                    "p": q.p,
                    "p_corrected": q.p_corrected,
                    "drift": q.drifts,
                }
                for q in w.quantities.values()
            },
        }
        for w in found.windows
    ]
    said = {"drift": found.drifts, "verdict": found.verdict, "test": TEST}
    return without_nan({**said, "notes": list(found.notes), "windows": windows})


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
