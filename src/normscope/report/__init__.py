"""Reads results and draws them: figures, and pages of one HTML file. It computes nothing."""

from normscope.report.evaluated import norms_section
from normscope.report.figures import (
    BLUE,
    GREEN,
    GREY,
    HEAT,
    ORANGE,
    PINK,
    SKY,
    YELLOW,
    new_figure,
    save,
    style,
)
from normscope.report.html import Mark, Page, Picture, Section, Table, is_page
from normscope.report.norm_figures import against_norm, bars, gallery, violins
from normscope.report.range_figure import range_figure, save_range_figure
from normscope.report.run_curves import curves, rates, summary_table
from normscope.report.run_page import command, run_page
from normscope.report.runs_page import runs_page

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "HEAT",
    "ORANGE",
    "PINK",
    "SKY",
    "YELLOW",
    "Mark",
    "Page",
    "Picture",
    "Section",
    "Table",
    "against_norm",
    "bars",
    "command",
    "curves",
    "gallery",
    "is_page",
    "new_figure",
    "norms_section",
    "range_figure",
    "rates",
    "run_page",
    "runs_page",
    "save",
    "save_range_figure",
    "style",
    "summary_table",
    "violins",
]
