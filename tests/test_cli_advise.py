"""`normscope advise` as a user meets it."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from tests.command import normscope  # pyright: ignore[reportMissingImports]

from normscope.cli import app


def test_advise_prints_one_line_and_draws_a_figure(tmp_path: Path) -> None:
    png = tmp_path / "new" / "range.png"
    done = normscope("advise", "simsiam", "--epochs", 20, "--device", "cpu", "--out", png)
    assert done.returncode == 0, done.stderr
    said = r"raise the lr ([\d.]+) times \(or cut by [\d.]+\), to .*: "
    said += r"--lr ([\d.]+) \(per 256 images; a step has \d+\), or --cut .*\n"
    found = re.fullmatch(said, done.stdout)
    assert found, done.stdout
    # the best of a grid is 8 times the recipe's .12: benchmarks/rates.py
    assert 4 <= float(found[1]) <= 16
    assert float(found[2]) == pytest.approx(0.12 * float(found[1]), rel=0.1)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.rglob("*")) == [png.parent, png]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["simlcr"], "Did you mean 'simclr'?"),
        (["simclr", "--device", "tpu"], "--device must be auto, cpu, cuda or mps"),
        (["simclr", "--out", "range.pdf"], "--out must end in .png, got 'range.pdf'"),
        (["simclr", "--steps", "3"], "steps must be an integer of at least 36, got 3"),
        (["simclr", "--steps", "40"], "steps must be enough to reach an lr that is too high"),
        (["simclr", "--optimizer", "angular"], "Its lr is the angle: try 0.01 to 0.1."),
        (["simclr", "--batch", "4096"], "batch must be at most the 1347"),
        (["simclr", "--out", "/proc/no/range.png"], "--out must be writable, got '/proc/no'"),
    ],
)
def test_a_wrong_option_is_one_line(words: list[str], line: str) -> None:
    done = normscope("advise", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_leaves_no_file_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    module = import_module("normscope.cli.advise")
    monkeypatch.setattr(module, "advised", interrupted)
    with pytest.raises(SystemExit) as end:
        app(["advise", "byol", "--out", str(tmp_path / "range.png")])
    assert end.value.code == 130
    assert capsys.readouterr() == ("", "Stopped. No figure was drawn.\n")
    assert list(tmp_path.iterdir()) == []
