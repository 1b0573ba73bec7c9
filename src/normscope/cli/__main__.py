"""`python -m normscope.cli`, which torchrun can start."""

from normscope.cli import run

run()
