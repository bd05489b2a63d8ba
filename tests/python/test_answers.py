"""Commands as functions: the program's answers, its messages, and frames of them."""

import json
import os
import tempfile
import unittest
from pathlib import Path

import slimpack
from support import DEMO, SOURCE, answer_of, ask, main, needs, without_clocks

ONE = {"workload.batches": 1}
SET = ("--set", "workload.batches=1")
SMALL = {
    "model": "llama-7b",
    "cluster": "h100-8",
    "parallel": {"tp": 2, "pp": 2},
    "workload": {
        "lengths": [900, 700, 600, 500, 300, 200],
        "context": 1024,
        "samples_per_batch": 6,
    },
}


class Answers(unittest.TestCase):
    def test_simulate(self):
        for options, words in (({}, ()), ({"verify": True, "jobs": 1}, ("--verify", "-j", "1"))):
            self.assertEqual(
                without_clocks(slimpack.simulate(DEMO, set=ONE, **options)),
                answer_of("simulate", DEMO, *SET, *words),
            )
        text = json.dumps(SMALL)
        expected = answer_of("simulate", "-", text=text)
        for scenario in (SMALL, text):
            answer = slimpack.simulate(scenario)
            self.assertEqual(without_clocks(answer), expected)
            self.assertFalse(answer.negative)

    def test_compare(self):
        answer = slimpack.compare(DEMO, set=ONE, strategies=["packed", "ffd"])
        self.assertEqual(
            without_clocks(answer), answer_of("compare", DEMO, *SET, "--strategies", "packed,ffd")
        )
        self.assertEqual([row["strategy"] for row in answer["rows"]], ["packed", "ffd"])

    def test_tune(self):
        settings = {"parallel.tp": 2, "parallel.cp": 1, "memory.recompute": "full"}
        answer = slimpack.tune(
            "llama-7b", gpus=8, context="4K", strategies=["packed"], set=settings
        )
        words = "--gpus 8 --context 4K --strategies packed --set parallel.tp=2"
        words += " --set parallel.cp=1 --set memory.recompute=full"
        self.assertEqual(without_clocks(answer), answer_of("tune", "llama-7b", *words.split()))

    def test_lengths(self):
        self.assertEqual(
            slimpack.lengths("wikipedia", samples=1000),
            answer_of("lengths", "wikipedia", "--samples", "1000"),
        )
        answer = slimpack.lengths([1, 2, 6])
        self.assertEqual((answer["count"], answer["tokens"], answer["mean"]), (3, 9, 3.0))
        with self.assertRaisesRegex(slimpack.SlimpackError, "got 1.5"):
            slimpack.lengths([1.5, 2])

    def test_lengths_of_arrays(self):
        np = needs("numpy")
        for kind in ("int32", "int64", "uint16"):
            self.assertEqual(slimpack.lengths(np.array([1, 2, 6], kind))["tokens"], 9)

    def test_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            ask("plan", DEMO, *SET, "-o", path, "--quiet")
            expected = json.loads(Path(path).read_text())
            self.assertEqual(slimpack.plan(DEMO, set=ONE), expected)
            kept = os.path.join(folder, "kept.json")
            self.assertEqual(slimpack.plan(DEMO, set=ONE, output=kept), expected)
            self.assertEqual(json.loads(Path(kept).read_text()), expected)

    def test_settings(self):
        """Values of every kind reach the scenario as they are meant."""
        settings = {
            "parallel.pp": 4,
            "strategy.kind": "ffd",
            "parallel.sequence_parallel": False,
            "workload.lengths": [900, 30],
            "memory.offload_ratio": 0.0,
        }
        scenario = slimpack.plan(SMALL, set=settings)["scenario"]
        self.assertEqual(
            (
                scenario["parallel"]["pp"],
                scenario["strategy"]["kind"],
                scenario["parallel"]["sequence_parallel"],
                scenario["workload"]["lengths"],
            ),
            (4, "ffd", False, [900, 30]),
        )

    def test_places_of_files(self):
        """A path inside a file is relative to the file's folder, inside a dictionary to ours."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "l.txt").write_text("700\n300\n")
            scenario = {
                **SMALL,
                "workload": {**SMALL["workload"], "lengths": "l.txt", "samples_per_batch": 2},
            }
            Path(folder, "s.json").write_text(json.dumps(scenario))
            by_file = slimpack.simulate(Path(folder, "s.json"))
            planner = slimpack.Planner(Path(folder, "s.json"))
            self.assertEqual(planner.scenario["workload"]["lengths"], os.path.join(folder, "l.txt"))
            here = os.getcwd()
            try:
                os.chdir(folder)
                self.assertEqual(
                    slimpack.simulate(scenario)["iteration_ms"], by_file["iteration_ms"]
                )
                self.assertEqual(
                    slimpack.Planner(scenario).scenario["workload"]["lengths"], "l.txt"
                )
            finally:
                os.chdir(here)

    def test_bad_input_raises(self):
        """By the program's own message, whether program or library says it."""
        typo = {**SMALL, "paralel": {}}
        _, _, said = ask("simulate", "-", text=json.dumps(typo))
        expected = said.replace("error: /dev/stdin", "scenario").strip()
        self.assertIn("did you mean 'parallel'?", expected)
        for function in (slimpack.simulate, slimpack.compare, slimpack.plan, slimpack.Planner):
            with self.assertRaises(slimpack.SlimpackError) as raised:
                function(typo)
            self.assertEqual((str(raised.exception), raised.exception.exit_status), (expected, 3))
            for bad, word in (
                ("nothing.json", "No such file"),
                ('{"model": }', "unexpected token"),
            ):
                with self.assertRaisesRegex(slimpack.SlimpackError, word):
                    function(bad)
        with self.assertRaisesRegex(slimpack.SlimpackError, "unknown option '--verfy'") as raised:
            slimpack.simulate(SMALL, verfy=True)
        self.assertEqual(raised.exception.exit_status, 2)
        # Several messages are all told.
        with self.assertRaises(slimpack.SlimpackError) as raised:
            slimpack.Planner(SMALL, {"parallel.tp": 0, "parallel.pp": 0})
        self.assertEqual(len(str(raised.exception).splitlines()), 2)
        for bad in ([0], [1.5], [], ["8"]):
            with self.assertRaises(slimpack.SlimpackError):
                slimpack.Planner(SMALL).plan(bad)

    def test_negative_is_returned(self):
        little = {"memory.limit_gib": 5}
        self.assertFalse(slimpack.simulate(SMALL).negative)
        answer = slimpack.simulate(SMALL, set=little)
        self.assertTrue(answer.negative and answer["oom"] is True)
        plan = slimpack.plan(SMALL, set=little)
        self.assertTrue(plan.negative and plan["batches"])
        plan = slimpack.Planner(SMALL, little).plan([900, 700])
        self.assertTrue(plan.negative and plan["reason"] and plan["batches"])
        # A strategy that needs a sample whole has no plan at all.
        none = {**little, "strategy.kind": "dynapipe"}
        answer = slimpack.simulate(SMALL, set=none)
        self.assertEqual(
            (answer.negative, answer["status"], answer["iteration_ms"]), (True, "infeasible", None)
        )
        plan = slimpack.plan(SMALL, set=none)
        self.assertEqual(
            (plan.negative, plan["plan"], plan["reason"]), (True, None, answer["reason"])
        )
        plan = slimpack.Planner(SMALL, none).plan([900, 700])
        self.assertTrue(plan.negative and plan["reason"] and not plan["batches"])

    def test_frames(self):
        needs("pandas")
        answer = slimpack.compare(DEMO, set=ONE, strategies=["packed", "ffd"])
        frame = answer.frame()
        self.assertEqual(
            list(frame["iteration_ms"]), [row["iteration_ms"] for row in answer["rows"]]
        )
        self.assertEqual(list(frame["layout.tp"]), [8, 8])
        self.assertEqual(len(slimpack.simulate(SMALL).frame()), 1)
        self.assertEqual(list(slimpack.simulate(SMALL).frame("ranks")["pp"]), [0, 1])
        self.assertEqual(slimpack.lengths([5, 6]).frame()["samples"].sum(), 2)
        slices = slimpack.plan(SMALL).frame()
        self.assertEqual(
            slices[slices["side"] == "forward"]["tokens"].sum(), sum(SMALL["workload"]["lengths"])
        )

    def test_main_is_the_program(self):
        import subprocess
        import sys

        done = subprocess.run(
            [sys.executable, "-m", "slimpack", "simulate", DEMO, "--json", *SET],
            capture_output=True,
            text=True,
        )
        self.assertEqual(without_clocks(json.loads(done.stdout)), answer_of("simulate", DEMO, *SET))
        self.assertTrue((SOURCE / "experiments/python/slimpack/py.typed").exists())


if __name__ == "__main__":
    main()
