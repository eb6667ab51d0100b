"""`reelserve --help` is there at once."""

import subprocess
import sys


def test_help_neither_waits_nor_imports_ray_or_torch() -> None:
    script = (
        "import sys, time; from app.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(time.process_time(), {'ray', 'torch', 'av', 'httpx'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    seconds, imported = ran.stdout.splitlines()[-1].split(" ", 1)
    assert imported == "set()"
    assert float(seconds) < 0.5
