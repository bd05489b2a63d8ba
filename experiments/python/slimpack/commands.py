"""Commands of the program as functions: a scenario in, the program's JSON out."""
from __future__ import annotations

import json
import operator
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

# A scenario: a dictionary, the path of a file, or JSON text. Paths inside a dictionary or a text
# are relative to the working directory, those inside a file to its folder.
Scenario = Union[Mapping[str, Any], str, "os.PathLike[str]"]
Settings = Mapping[str, Any]  # {"parallel.pp": 8}, as --set has them

# The first of these lists that an answer has makes the rows of its frame; others are one row.
_ROWS = ("rows", "top", "bins")


class SlimpackError(Exception):
    """Wrong usage (exit status 2), bad input (3), a limit (4) or a defect (70): its own message.

    A negative answer (out of memory, no plan) is none: it is returned, see `Answer.negative`.
    """

    def __init__(self, message: str, exit_status: int):
        super().__init__(message)
        self.exit_status = exit_status


class ArgumentError(SlimpackError, ValueError):
    """A value that an argument of this package cannot have, and what to write."""

    def __init__(self, message: str):
        super().__init__(message, 2)


class Answer(Dict[str, Any]):
    """A document of the program; its keys name their units.

    negative: the answer is no: it lacks memory, or there is no plan (exit status 1).
    warnings: what else to know, where the document itself has no `warnings`.
    """

    def __init__(self, document: Mapping[str, Any], negative: bool = False,
                 warnings: Sequence[str] = ()):
        super().__init__(document)
        self.negative = negative
        self.warnings = list(document.get("warnings") or warnings)

    def frame(self, key: Optional[str] = None) -> Any:
        """A pandas.DataFrame of the list `key` (default: the rows of a comparison, `top` of tune,
        bins of lengths, slices of a plan; any other answer is one row). Members of members are
        columns "layout.tp". ImportError without pandas."""
        import pandas
        if key is None and self.get("schema") == "slimpack/plan/1":
            return pandas.DataFrame(_slices(self))
        key = key or next((name for name in _ROWS if name in self), None)
        return pandas.json_normalize(self[key] if key else dict(self))


def _slices(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"batch": b, "side": side, "pack": p, "dp": pack["dp"], **part,
             "id": batch["samples"][part["sample"]]["id"]}
            for b, batch in enumerate(plan["batches"]) for side in ("forward", "backward")
            for p, pack in enumerate(batch[side + "_packs"]) for part in pack["slices"]]


def program() -> str:
    """Path of the program: $SLIMPACK_PROGRAM, that of this package, or the one in $PATH."""
    own = str(Path(__file__).parent / "bin" / "slimpack")
    found = os.environ.get("SLIMPACK_PROGRAM") or shutil.which(own) or shutil.which("slimpack")
    if not found:
        raise SlimpackError("no program 'slimpack' in this package or in $PATH", 3)
    return found


def document_of(scenario: Scenario) -> Tuple[str, Optional[str]]:
    """The path of a scenario and None, or a name for it and its text."""
    if isinstance(scenario, Mapping):
        return "scenario", json.dumps(scenario, allow_nan=False)
    text = os.fspath(scenario)
    return ("scenario", text) if text.lstrip().startswith("{") else (text, None)


def overrides_of(settings: Optional[Settings]) -> list[str]:
    """`path=value` texts, values as JSON but for texts."""
    return [f"{path}={value if isinstance(value, str) else json.dumps(value)}"
            for path, value in (settings or {}).items()]


def _run(command: str, operand: Scenario, settings: Optional[Settings],
         options: Mapping[str, Any], text: Optional[str] = None) -> Answer:
    words = [program(), command, "--json", "--quiet"]
    for assignment in overrides_of(settings):
        words += ["--set", assignment]
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, Sequence) and not isinstance(value, str):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(str(value))
    path, text = document_of(operand) if text is None else ("-", text)
    words.append(path if text is None else "-")
    done = subprocess.run(words, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise SlimpackError(_message(done.stderr) or f"{command} ended by {done.returncode}",
                            done.returncode)
    return Answer(json.loads(done.stdout), negative=done.returncode == 1)


def _message(stderr: str) -> str:
    lines = [line[len("error: "):] if line.startswith("error: ") else line
             for line in stderr.splitlines()]
    return "\n".join(lines).replace("/dev/stdin:", "scenario:")


def simulate(scenario: Scenario, *, set: Optional[Settings] = None, **options: Any) -> Answer:
    """`slimpack simulate`: one step a batch (slimpack/result/1): times in ms, memory in GiB.
    Options are those of the command: simulate(s, verify=True, trace="t.json")."""
    return _run("simulate", scenario, set, options)


def compare(scenario: Scenario, *, set: Optional[Settings] = None, **options: Any) -> Answer:
    """`slimpack compare`: `rows`, one a strategy: compare(s, strategies=["packed", "slimpack"])."""
    return _run("compare", scenario, set, options)


def tune(model: Scenario, *, gpus: int, context: Union[int, str], set: Optional[Settings] = None,
         **options: Any) -> Answer:
    """`slimpack tune`: the fastest layout of a model (a name, a config.json as path, dictionary or
    text) on so many GPUs for samples of up to `context` tokens; `answer`, `top`, `front`, ..."""
    return _run("tune", model, set, {"gpus": gpus, "context": context, **options})


def lengths(source: Union[Sequence[int], str, "os.PathLike[str]"], **options: Any) -> Answer:
    """`slimpack lengths`: statistics of lengths in tokens: a list, a file, or a built-in name."""
    if isinstance(source, (str, os.PathLike)):
        return _run("lengths", os.fspath(source), None, options)
    return _run("lengths", "", None, options, json.dumps(list(source), default=operator.index))


def plan(scenario: Scenario, *, set: Optional[Settings] = None, **options: Any) -> Answer:
    """`slimpack plan -o`: the plan of the scenario's own batches (slimpack/plan/1), which the
    option `output` keeps as a file. Where there is none the summary with its `reason`, which is
    negative. Of batches that you bring: `Planner`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.get("output") or os.path.join(folder, "plan.json"))
        summary = _run("plan", scenario, set, {**options, "output": str(path)})
        if not path.exists() or summary.get("plan") is None:
            return summary
        return Answer(json.loads(path.read_text(encoding="utf-8")),
                      summary.negative, summary.warnings)
