"""mkdocs hook: turns the formulas between dollar signs into MathML, which browsers draw unaided."""

import re

from latex2mathml.converter import convert  # pyright: ignore[reportMissingImports]

_CODE_OR_FORMULA = re.compile(
    r"<(pre|code)\b.*?</\1>|(?<!\\)\$(?P<formula>[^$<>]+)(?<!\\)\$", re.DOTALL
)


def on_page_content(html: str, **_: object) -> str:
    """The page with its formulas drawn; code is left as it is."""

    def draw(match: re.Match[str]) -> str:
        formula = match["formula"]
        return convert(formula.replace("&amp;", "&")) if formula else match[0]

    return _CODE_OR_FORMULA.sub(draw, html)
