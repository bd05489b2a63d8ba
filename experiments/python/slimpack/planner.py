"""Plans of batches by the C library (solver/evaluate/plan_batch.h), in this process."""
from __future__ import annotations

import ctypes
import functools
import itertools
import json
import os
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Optional, Sequence

from .commands import Answer, Scenario, Settings, SlimpackError, document_of, overrides_of

_INFEASIBLE = 1  # SP_ERR_INFEASIBLE of sim/base/status.h, by its exit status


class Error(ctypes.Structure):
    """sp_error of sim/base/status.h."""
    _fields_ = [("status", c_int), ("count", c_int),
                 ("dropped", c_int), ("message", c_char * 640 * 10)]

    def text(self) -> str:
        """All messages, a line each."""
        held = [self.message[i].value.decode("utf-8", "replace") for i in range(self.count)]
        more = [f"{self.dropped} more"] if self.dropped else []
        return "\n".join(held + more)


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The shared library: $SLIMPACK_LIBRARY, or that of this package."""
    here = Path(__file__).parent
    own = next(map(str, here.glob("lib/libslimpack.so.*")), None)
    found = os.environ.get("SLIMPACK_LIBRARY") or own
    if not found:
        raise SlimpackError("no library libslimpack.so in this package "
                            "($SLIMPACK_LIBRARY may name it)", 3)
    # The program looks for profiles beside itself; a library inside python has to be told.
    profiles = here / "share" / "slimpack" / "profiles"
    if profiles.is_dir():
        paths = [os.environ.get("SLIMPACK_PROFILE_PATH"), str(profiles)]
        os.environ["SLIMPACK_PROFILE_PATH"] = ":".join(path for path in paths if path)
    lib = ctypes.CDLL(found)
    for name, result, arguments in (
            ("sp_planner_open", c_int,
             (c_char_p, c_char_p, POINTER(c_char_p), c_int, POINTER(c_void_p), POINTER(Error))),
            ("sp_planner_free", None, (c_void_p,)),
            ("sp_planner_scenario_text", c_void_p, (c_void_p,)),
            ("sp_planner_skip_settings", None, (c_void_p,)),
            ("sp_plan_batch", c_int,
             (c_void_p, POINTER(c_int64), c_size_t, POINTER(c_void_p), POINTER(Error))),
            ("sp_batch_plan_text", c_int,
             (c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(Error))),
            ("sp_batch_plan_text_free", None, (c_void_p,)),
            ("sp_batch_plan_warning", c_char_p, (c_void_p, c_int)),
            ("sp_batch_plan_free", None, (c_void_p,)),
            ("sp_status_exit", c_int, (c_int,))):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Planner:
    """Plans one batch of lengths after another, as `slimpack plan --stream` does; Python's lock is
    released meanwhile. Planners of one scenario may plan at the same time, each one batch.

    scenario: as resolved, with what the strategy chose (a dictionary).
    """

    def __init__(self, scenario: Scenario, set: Optional[Settings] = None):
        self._lib = library()
        self._planner = c_void_p()
        self._one = threading.Lock()
        name, text = document_of(scenario)
        overrides = [assignment.encode() for assignment in overrides_of(set)]
        err = Error()
        status = self._lib.sp_planner_open(
            os.fsencode(name), text.encode() if text is not None else None,
            (c_char_p * max(len(overrides), 1))(*overrides), len(overrides), byref(self._planner),
            byref(err))
        self._raise(status, err)
        text_of = self._lib.sp_planner_scenario_text(self._planner)
        self.scenario: dict[str, Any] = json.loads(ctypes.string_at(text_of))
        self._lib.sp_batch_plan_text_free(text_of)

    def _raise(self, status: int, err: Error) -> None:
        if status != 0:
            raise SlimpackError(err.text(), self._lib.sp_status_exit(status))

    def skip_settings(self) -> None:
        """No settings are tried for a batch that lacks memory: another planner tells of them."""
        self._lib.sp_planner_skip_settings(self._planner)

    def plan(self, tokens: Sequence[int]) -> Answer:
        """The plan of a batch of samples of tokens[i] >= 1 tokens (slimpack/plan/1, one batch; an
        id is a position in `tokens`). Negative with its `reason`: it needs more memory than there
        is, or, without a batch, there is no plan. SlimpackError where lengths make no batch."""
        try:
            lengths = (c_int64 * len(tokens))(*tokens)
        except TypeError:
            raise SlimpackError("batch: expected lengths in tokens, all integers", 3) from None
        err, plan = Error(), c_void_p()
        with self._one:
            if not self._planner:
                raise SlimpackError("the planner is closed", 2)
            status = self._lib.sp_plan_batch(self._planner, lengths, len(tokens), byref(plan),
                                             byref(err))
            if status != 0 and self._lib.sp_status_exit(status) == _INFEASIBLE:
                none = {"schema": "slimpack/plan/1", "batches": [], "reason": err.text()}
                return Answer(none, negative=True)
            self._raise(status, err)
            try:
                return self._document(plan)
            finally:
                self._lib.sp_batch_plan_free(plan)

    def _document(self, plan: c_void_p) -> Answer:
        err, text, size = Error(), c_void_p(), c_size_t()
        self._raise(self._lib.sp_batch_plan_text(self._planner, plan, byref(text), byref(size),
                                                 byref(err)), err)
        document = json.loads(ctypes.string_at(text.value or 0, size.value))
        self._lib.sp_batch_plan_text_free(text)
        warning = functools.partial(self._lib.sp_batch_plan_warning, plan)
        told = itertools.takewhile(bool, map(warning, itertools.count()))
        return Answer(document, "reason" in document, [text.decode() for text in told])

    def close(self) -> None:
        """Frees the planner, once it plans no more."""
        with self._one:
            planner, self._planner = self._planner, c_void_p()
            self._lib.sp_planner_free(planner)

    def __enter__(self) -> "Planner":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_planner", None):
            self.close()
