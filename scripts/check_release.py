"""Plays the first minutes of a user with a built wheel, in an empty environment outside of the repository.

    python scripts/check_release.py                      the newest dependencies, this Python
    python scripts/check_release.py --python 3.12        another Python (uv finds it on this machine)
    python scripts/check_release.py --lowest             every dependency at its lower bound
    python scripts/check_release.py --with pyspark==4.3.0 --without delta
    python scripts/check_release.py --kafka 4.1.1        another broker

What is played: `streams init` with each template and the tests of these projects, `streams broker`, `streams run`, and the result.
Needs `uv` and `build`, Java, and the package registries.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("spark", "delta", "registry", "snapshots", "otel")
VISIT = '{"key": "/home", "value": {"user": "ann"}, "timestamp": 1700000000000}\n'
RESULT = '/home\t{"minute":1699999980000,"visits":1}\n'


def main() -> None:
    """Builds, installs and plays; an exit code of 0 means that everything worked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--lowest", action="store_true", help="every dependency at its lower bound")
    parser.add_argument("--with", dest="pins", action="append", default=[], metavar="REQUIREMENT")
    parser.add_argument("--without", action="append", default=[], choices=EXTRAS, help="leave an extra out")
    parser.add_argument("--kafka", help="the broker's version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streams-release-") as folder:
        place = Path(folder)
        bin_folder = install(place, options)
        play(place, bin_folder, options.kafka)


def install(place: Path, options: argparse.Namespace) -> Path:
    """Builds the wheel from the source distribution, and installs it; returns the environment's folder of commands."""
    run(place, sys.executable, "-m", "build", "--outdir", place / "dist", ROOT)
    (wheel,) = (place / "dist").glob("*.whl")
    extras = [f"--extra={name}" for name in EXTRAS if name not in options.without]
    resolution = "lowest-direct" if options.lowest else "highest"
    pins = place / "pins.txt"
    pins.write_text("\n".join(options.pins))
    resolve = ["--quiet", "--no-emit-index-url", "--no-python-downloads", "--python-version", options.python]
    run(
        place,
        *("uv", "pip", "compile", *resolve, f"--resolution={resolution}", *extras, "--constraint", pins),
        *(ROOT / "pyproject.toml", "--output-file", place / "requirements.txt"),
    )
    run(place, "uv", "venv", "--quiet", "--no-python-downloads", "--python", options.python, place / "environment")
    environment = {"VIRTUAL_ENV": str(place / "environment")}
    run(place, "uv", "pip", "install", "--quiet", "-r", place / "requirements.txt", "pytest", env=environment)
    run(place, "uv", "pip", "install", "--quiet", "--no-deps", wheel, env=environment)
    return place / "environment" / "bin"


def play(place: Path, commands: Path, kafka: str | None) -> None:
    """A new project with a module `state` of its own: its test, and one run on a broker and on Spark."""
    env = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"} | ({"STREAMS_KAFKA_VERSION": kafka} if kafka else {})
    run(place, "streams", "--version", env=env)
    for template in ("joins", "lake", "typed"):
        run(place, "streams", "init", template, "--template", template, env=env)
        run(place / template, "python", "-m", "pytest", "-q", env=env)
    run(place, "streams", "init", "shop", env=env)
    shop = place / "shop"
    (shop / "state.py").write_text("def visits(count):\n    return count\n")
    app = (shop / "app.py").read_text().replace('"visits": count', '"visits": visits(count)')
    (shop / "app.py").write_text(app.replace("from datetime", "from state import visits\nfrom datetime", 1))
    run(shop, "python", "-m", "pytest", "-q", env=env)
    run(shop, "streams", "broker", "start", env=env)
    try:
        run(shop, "streams", "topic", "create", "visits", "visits-by-minute", env=env)
        run(shop, "streams", "topic", "send", "visits", "--json", env=env, stdin=VISIT)
        run(shop, "streams", "run", "app.py", "-c", "streams.toml", "--available-now", env=env)
        read = run(shop, "streams", "topic", "read", "visits-by-minute", env=env)
    finally:
        run(shop, "streams", "broker", "stop", "--delete", env=env)
    if read != RESULT:
        sys.exit(f"the result is {read!r}, not {RESULT!r}")
    sys.stdout.write("the release works\n")


def run(folder: Path, *command: object, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """Runs a command, shows it and what it prints, and returns its standard output."""
    words = [str(word) for word in command]
    sys.stdout.write(f"$ {' '.join(words)}\n")
    sys.stdout.flush()
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        words, cwd=folder, env=clean | (env or {}), input=stdin, stdout=subprocess.PIPE, text=True, check=False
    )
    sys.stdout.write(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
