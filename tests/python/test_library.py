"""The shared library: what it exports, and its plans, which are those of `plan --stream`."""

import ctypes
import json
import re
import shutil
import subprocess
import threading
import unittest

import slimpack
from slimpack import planner as planner_module
from support import DEMO, SOURCE, ask, main

STRATEGIES = ("packed", "ffd", "balanced", "chunkflow", "slimpack", "zeppelin")
BATCHES = [[5321, 812, 40960], [700] * 9 + [16000, 3], [262144, 1], [300000, 12], [1] * 40]


def library_path():
    return planner_module.library()._name


class Library(unittest.TestCase):
    def test_soname(self):
        if not shutil.which("readelf"):
            raise unittest.SkipTest("no readelf (Debian: binutils)")
        text = subprocess.run(
            ["readelf", "-d", library_path()], capture_output=True, text=True
        ).stdout
        version = re.search(
            r"slimpack VERSION (\d+)", (SOURCE / "CMakeLists.txt").read_text()
        ).group(1)
        self.assertEqual(re.findall(r"SONAME.*\[(.*)\]", text), ["libslimpack.so." + version])
        # Nothing of the machine it was built on.
        self.assertNotRegex(text, r"(RPATH|RUNPATH).*\[[^]$]*/")

    def test_exports_what_headers_mark(self):
        if not shutil.which("nm"):
            raise unittest.SkipTest("no nm (Debian: binutils)")
        text = subprocess.run(
            ["nm", "-D", "--defined-only", library_path()], capture_output=True, text=True
        ).stdout
        exported = {line.split()[-1].split("@")[0] for line in text.splitlines()}
        marked = set()
        for room in ("sim", "solver"):
            for header in (SOURCE / room).rglob("*.h"):
                marked |= set(
                    re.findall(
                        r"^SP_API(?:_DATA)?\s[^;(]*?(sp_\w+)(?:\(|\[|;)", header.read_text(), re.M
                    )
                )
        self.assertGreater(len(marked), 60)
        sanitizer = {
            name
            for name in exported
            if re.match(r"_*(asan|odr_asan|ubsan)|_init$|_fini$|_edata$|_end$|__bss", name)
        }
        self.assertEqual(exported - sanitizer, marked)

    def test_error_is_the_header_s(self):
        text = (SOURCE / "sim/base/status.h").read_text()
        messages, size = (
            int(re.search(name + r" = (\d+)", text).group(1))
            for name in ("SP_ERROR_MESSAGES", "SP_ERROR_TEXT")
        )
        self.assertEqual(
            ctypes.sizeof(planner_module.Error), 3 * ctypes.sizeof(ctypes.c_int) + messages * size
        )

    def test_plans_of_the_stream(self):
        for strategy in STRATEGIES:
            settings = {"strategy.kind": strategy}
            _, lines, _ = ask(
                "plan",
                DEMO,
                "--stream",
                "--quiet",
                "--set",
                "strategy.kind=" + strategy,
                text="".join(json.dumps(batch) + "\n" for batch in BATCHES),
            )
            with slimpack.Planner(DEMO, settings) as planner:
                for batch, line in zip(BATCHES, lines.splitlines()):
                    self.assertEqual(planner.plan(batch), json.loads(line), (strategy, batch))

    def test_plans_that_lack_memory(self):
        """The first one has the settings that would make it fit, others their reason alone."""
        settings = {"parallel.pp": 2, "parallel.dp": 8, "memory.limit_gib": 9}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        _, lines, _ = ask(
            "plan", DEMO, "--stream", "--quiet", "-j", "1", *words, text="[90000]\n[90000]\n"
        )
        planner = slimpack.Planner(DEMO, settings)
        for line in lines.splitlines():
            answer = planner.plan([90000])
            self.assertEqual(answer, json.loads(line))
            self.assertTrue(answer.negative)

    def test_warnings_are_told(self):
        """Those of --stream, which stand in no document."""
        settings = {"strategy.kind": "slimpack", "parallel.cp": 2, "parallel.pp": 4}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        _, _, said = ask("plan", DEMO, "--stream", *words, text="[5321, 812, 40960]\n")
        expected = re.findall(r"^warning: line 1: (.*)", said, re.M)
        self.assertTrue(expected)
        answer = slimpack.Planner(DEMO, settings).plan([5321, 812, 40960])
        self.assertEqual(answer.warnings, expected)

    def test_planners_on_threads(self):
        """Planners plan alike at the same time; one planner serves whoever calls."""
        shared = slimpack.Planner(DEMO, {"strategy.kind": "ffd"})
        expected = [shared.plan(batch) for batch in BATCHES]
        found = {}

        def work(k):
            planner = shared if k % 2 else slimpack.Planner(DEMO, {"strategy.kind": "ffd"})
            found[k] = [planner.plan(batch) for batch in BATCHES]

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[k] for k in range(4)], [expected] * 4)
        shared.close()
        with self.assertRaisesRegex(slimpack.SlimpackError, "closed"):
            shared.plan([1])


if __name__ == "__main__":
    main()
