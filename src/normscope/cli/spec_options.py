"""Options for the fields of a RunSpec, made from the fields themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from normscope.cli.console import refuse
from normscope.engine import RunSpec
from normscope.engine.own_images import Fitted, fitted
from normscope.engine.resolve import BY_RECIPE

Command = TypeVar("Command", bound=Callable[..., Any])
_KINDS = (bool, int, float)  # everything else is text


def with_spec_options(*without: str) -> Callable[[Command], Command]:
    """Give a command that ends in `**values` an option for each field of a spec.

    Args:
        without: fields that the command has by itself, or that no option can give.
    """

    def decorated(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [_parameter(f) for f in fields(RunSpec) if f.name not in without]
        first = next(i for i, p in enumerate(own) if p.default is not p.empty)
        parameters = [*own[:first], *made, *own[first:]]
        command.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorated


def about(name: str) -> str:
    """A few words on a field."""
    return RunSpec.__dataclass_fields__[name].metadata["setting"].about


def _parameter(of: Field[Any]) -> inspect.Parameter:
    kind = _kind(of.name)
    default = "" if of.default is BY_RECIPE else f" [default: {of.default}]"
    option = typer.Option(help=about(of.name) + default, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        of.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _kind(name: str) -> type:
    hint = get_type_hints(RunSpec)[name]
    return next((k for k in _KINDS if hint in (k, k | None)), str)


def spec_from(options: Mapping[str, Any], pairs: list[str], *, device: str) -> Fitted:
    """The spec of the given options; its missing settings fit the user's own images.

    Args:
        options: the fields' options; None where one was not given.
        pairs: of --set, NAME=VALUE: fields of the spec, or else options of the method.
        device: where it will be trained.
    """
    values = {name: value for name, value in options.items() if value is not None}
    names = {f.name for f in fields(RunSpec)} - {"options"}
    own: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            refuse(f"--set must be NAME=VALUE, got {pair!r}.")
        place = values if name in names else own
        if name in place:
            refuse(f"--set must not repeat another option, got {name!r}.")
        place[name] = text if name in names and _kind(name) is str else value_of(text)
    return fitted(values | ({"options": own} if own else {}), device=device)


def value_of(text: str) -> int | float | str | bool:
    """A number where it is one.

    >>> value_of("8"), value_of("0.5"), value_of("true"), value_of("sum")
    (8, 0.5, True, 'sum')
    """
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
