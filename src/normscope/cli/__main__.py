"""`python -m normscope.cli`, which torchrun can start: as the console script."""

from normscope._start import run

run()
