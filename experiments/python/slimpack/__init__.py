"""slimpack in Python: predictions of training steps, and batches planned for data loaders.

    import slimpack
    answer = slimpack.simulate({"model": "llama-7b", "workload": {"lengths": "wikipedia", ...}})
    answer["iteration_ms"], answer.frame()

    sampler = slimpack.PlannedBatchSampler(lengths, "scenario.json", rank=rank)
    loader = DataLoader(slimpack.PackedDataset(documents), batch_sampler=sampler, collate_fn=list)
"""
from typing import Any

from .commands import (Answer, ArgumentError, SlimpackError, compare, lengths, plan, program,
                       simulate, tune)

__all__ = ["Answer", "ArgumentError", "SlimpackError", "compare", "lengths", "plan", "program",
           "simulate", "tune", "Planner", "Pack", "PackedDataset", "PlannedBatch", "PlannedBatchSampler", "Slice"]


def __getattr__(name: str) -> Any:
    """PyTorch and the library are loaded by the first use of what needs them."""
    if name == "Planner":
        from .planner import Planner
        return Planner
    if name in __all__:
        from . import loading
        return getattr(loading, name)
    raise AttributeError(f"module 'slimpack' has no attribute '{name}'")
