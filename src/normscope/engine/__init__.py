"""Training runs: a spec, one loop, and a folder that survives interruptions."""

from normscope.engine.advise import advise
from normscope.engine.compose import build
from normscope.engine.evaluate import evaluate, made_with
from normscope.engine.interrupts import Stopped
from normscope.engine.run import train
from normscope.engine.run_folder import InUseError, RunFolder, RunResult
from normscope.engine.spec import RunSpec
from normscope.monitors import RangeTest

__all__ = [
    "InUseError",
    "RangeTest",
    "RunFolder",
    "RunResult",
    "RunSpec",
    "Stopped",
    "advise",
    "build",
    "evaluate",
    "made_with",
    "train",
]
