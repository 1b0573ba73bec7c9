"""The page on drift: the verdict, every test, and each quantity over the windows."""

from __future__ import annotations

from matplotlib.axes import Axes

from normscope._environment import versions
from normscope.report.figures import BLUE, GREY, ORANGE
from normscope.report.html import Mark, Page, Section, Table
from normscope.report.norm_sections import picture
from normscope.scoring import LEFT_OUT, TEST, Drift, p_in_words

_LABELS = 8  # windows that are named below a plot, at most


def drift_page(found: Drift) -> Page:
    """All that was found, the verdict first."""
    sections = [Section("Verdict", [found.verdict, TEST, *found.notes])]
    plots = [
        picture(lambda axes, name=name: _draw(axes, found, name), _caption(name))
        for name in found.windows[1].quantities
    ]
    sections += [Section("Over the windows", figures=plots), _tests(found), _rows(found)]
    first, *others = found.windows
    lead = f"Drift was found in {sum(w.drifts for w in others)} of {len(others)} later windows."
    if len(others) == 1:
        lead = f"Drift was found in {others[0].name}."
    lead = lead if found.drifts else "No drift was found."
    made = f"normscope {versions()['normscope']}."
    return Page(f"Drift against {first.name}", lead, sections, made)


def _tests(found: Drift) -> Section:
    headings = ("window", "quantity", "drift", "corrected p", "distance", "median before", "median")
    first, *others = found.windows
    rows, marks = [], {}
    for window in others:
        for q in window.quantities.values():
            before = first.quantities.get(q.name)
            was = "0" if before is None else f"{before.median:.4g}"
            numbers = [p_in_words(q), f"{q.distance:.3f}", was, f"{q.median:.4g}"]
            mark: Mark = "no" if q.drifts else "open"
            marks[len(rows), headings.index("drift")] = mark
            rows.append([window.name, q.name, "yes" if q.drifts else "no", *numbers])
    text = (
        "Distance: the largest difference of the two distribution functions, from 0 to 1. "
        "Direction: where rows lie on the line between both mean directions, in deviations."
    )
    return Section("Tests", [text], Table(headings, rows, numeric=range(3, 7), marks=marks))


def _rows(found: Drift) -> Section:
    rows = [
        [
            w.name,
            f"{w.rows:,}",
            f"{w.drawn:,}",
            ", ".join(f"{n:,}: {LEFT_OUT[s]}" for s, n in w.left_out.items()),
        ]
        for w in found.windows
    ]
    return Section("Rows", table=Table(("window", "rows", "drawn", "left out"), rows, (1, 2)))


def _caption(name: str) -> str:
    what = {
        "norm": "Norms",
        "neighbours": "Mean cosine with the five nearest rows of the first window",
        "direction": "Direction, on the line from the first window's mean",
    }.get(name, name)
    return f"{what}: median, quartiles, 5 and 95 %. Orange where it drifts."


def _draw(axes: Axes, found: Drift, name: str) -> None:
    before = found.windows[0].quantities.get(name)
    level = 0.0 if before is None else before.median
    axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
    for at, window in enumerate(found.windows):
        if name not in window.quantities:  # the direction of the first window is that line
            continue
        quantity = window.quantities[name]
        low, first, middle, third, high = quantity.levels
        color = ORANGE if quantity.drifts else BLUE
        axes.vlines(at, low, high, color=color, linewidth=1.2)
        axes.vlines(at, first, third, color=color, linewidth=7, alpha=0.6)
        axes.plot([at], [middle], "o", color=color, markersize=5)
    names = [window.name for window in found.windows]
    shown = range(0, len(names), -(-len(names) // _LABELS))
    axes.set_xticks(list(shown), [_cut(names[i]) for i in shown], rotation=30, ha="right")
    axes.set(ylabel=name, xlim=(-0.6, len(names) - 0.4))


def _cut(name: str) -> str:
    name = name.split(" to ")[0].replace("$", r"\$")
    return name if len(name) <= 22 else f"{name[:21]}…"
