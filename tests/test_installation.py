"""scripts/install.sh: what it installs, and that what it leaves can be loaded."""

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from setuptools import find_packages

from tests.messages import assert_names, process_refuses
from tests.paths import ROOT, SCRIPTS
from tests.tiny_data import write_tiny_data

PACKAGES = ("fairseq_transnormer", "data_prep")
# stands for python3 and for the environment's: notes what it is asked
PYTHON = """#!/bin/sh
echo "$@" >>{asked}
case "$*" in
    *version_info*) echo 3.11 ;;
    "-m venv "*) mkdir -p "$3/bin" && cp {python} "$3/bin/python" ;;
    *--editable*) exit "${{FAIL:-0}}" ;;
    *"import torchaudio"*) exit {status} ;;
esac
"""


@pytest.fixture
def install(tmp_path):
    """Runs the script; returns what it asked Python for."""

    def run(
        torchaudio_loads: bool, named: bool = True, scripts: Path = SCRIPTS
    ) -> list[str]:
        asked, python = tmp_path / "asked", tmp_path / "python3.11"
        status, old = int(not torchaudio_loads), tmp_path / "python3"
        python.write_text(PYTHON.format(asked=asked, python=python, status=status))
        old.write_text("#!/bin/sh\necho 3.10")
        for each in (python, old):
            each.chmod(0o755)
        asked.unlink(missing_ok=True)
        environment = os.environ | {"PYTHON": str(python) * named}
        environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        script = ["bash", scripts / "install.sh", tmp_path / "venv"]
        options = {"check": True, "capture_output": True, "text": True}
        subprocess.run(script, env=environment, **options)
        return asked.read_text().splitlines()

    return run


def test_every_room_is_installed():
    """A folder without ``__init__.py`` works here, and is left out of a wheel."""
    for name in PACKAGES:
        rooms = {path.parent for path in (ROOT / name).rglob("*.py")}
        packed = find_packages(ROOT, include=[name, f"{name}.*"])
        assert {".".join(room.relative_to(ROOT).parts) for room in rooms} == set(packed)


@pytest.mark.slow
def test_a_wheel_has_what_its_commands_need(tmp_path):
    """All files of the packages, the configurations, and a training that begins."""
    # setuptools writes into the folder that it builds, what would then be found first
    source = tmp_path / "source"
    for name in (*PACKAGES, "configs"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [*("-m", "build", "--wheel", "--no-isolation", "--outdir"), tmp_path]
    run_python(*build, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    modules = {path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    assert {str(path.relative_to(ROOT)) for path in modules} <= packed
    yaml = {path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.yaml")}
    assert {f"fairseq_transnormer/{path}" for path in yaml} <= packed
    assert "fairseq_transnormer/py.typed" in packed
    write_tiny_data(tmp_path / "data")
    shown = run_python(
        *("-m", "fairseq_transnormer", "train", "alm_small", "--dry-run"),
        *("--gpus", "0", "--data", tmp_path / "data"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
    )
    assert f"user_dir: {tmp_path}/site/fairseq_transnormer\n" in shown


def run_python(*arguments, **keywords) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def removed(asked: list[str]) -> list[str]:
    return [line.split()[-1] for line in asked if "pip uninstall" in line]


def cloned(folder: Path) -> Path:
    """What the script reads, in another place; returns the folder of scripts."""
    shutil.copytree(SCRIPTS, folder / "scripts")
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder / "scripts"


def test_a_torchaudio_that_cannot_be_loaded_is_removed(install):
    asked = install(torchaudio_loads=False)
    assert removed(asked) == ["torchaudio"]
    # nothing installs it again behind that
    assert "pip uninstall" in asked[-1]
    # python3 may be of any version afterwards
    again = install(torchaudio_loads=False, named=False)
    assert not any("pip" in line for line in again)


def test_a_repository_or_environment_that_has_moved(install, tmp_path):
    """The one is installed from where it lies now, the other is refused."""
    install(torchaudio_loads=True)
    made = tmp_path / "venv/pyvenv.cfg"
    made.write_text(f"command = /bin/python3 -m venv --copies {tmp_path}/venv\n")
    assert not any("pip" in line for line in install(torchaudio_loads=True))
    (tmp_path / "link").symlink_to(ROOT)
    again = install(torchaudio_loads=True, scripts=tmp_path / "link/scripts")
    assert not any("pip" in line for line in again)
    scripts = cloned(tmp_path / "clone")
    asked = install(torchaudio_loads=True, scripts=scripts)
    assert any(f"--editable {tmp_path}/clone[" in line for line in asked)
    own = 'command = /bin/python3 -m venv --prompt="my/own" /elsewhere/venv\n'
    made.write_text(own)
    install(torchaudio_loads=True)
    made.write_text(f"command = /bin/python3 -m venv {tmp_path}/an old one\n")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        install(torchaudio_loads=True)
    told = refused.value.stderr
    assert_names(told, tmp_path / "an old one", f"remove {tmp_path}/venv")


def test_an_installation_that_failed_is_made_again(install, tmp_path, monkeypatch):
    """Even by what had been installed before: half of it may be there no more."""
    install(torchaudio_loads=True)
    scripts = cloned(tmp_path / "clone")
    monkeypatch.setenv("FAIL", "9")
    with pytest.raises(subprocess.CalledProcessError):
        install(torchaudio_loads=True, scripts=scripts)
    monkeypatch.delenv("FAIL")
    assert any("pip" in line for line in install(torchaudio_loads=True))


def test_the_commands_that_the_quickstart_ends_with():
    script = (SCRIPTS / "quickstart.sh").read_text()
    lines = ["dir='my runs'", *script.splitlines()[-4:]]
    printed = subprocess.check_output(["bash", "-c", "\n".join(lines)], text=True)
    _, *commands = map(shlex.split, printed.splitlines())
    assert len(commands) == 2
    for words in commands:
        assert {"my runs/data-bin", "my runs/checkpoints/checkpoint_best.pt"} < {*words}


# their help is that of a command, which imports torch
WITH_TORCH = {"finetune_glue.sh", "generate.sh", "gpu_check.sh"}


@pytest.mark.parametrize(
    "script", sorted({p.name for p in SCRIPTS.glob("*.sh")} - WITH_TORCH)
)
def test_help_of_every_script(script, tmp_path):
    """It does nothing; options that are not known are refused in a line."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def answer(*words):
        command = ["bash", tmp_path / "scripts" / script, *words]
        options = {"capture_output": True, "text": True, "cwd": tmp_path}
        return subprocess.run(command, env=environment, **options)

    done = answer("--help")
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
    if script == "install.sh":
        process_refuses(answer("--nosuch"), "--nosuch")
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]


def test_a_torchaudio_that_can_be_loaded_stays(install):
    assert not removed(install(torchaudio_loads=True))


def test_gpu_check_finds_the_environment(install, tmp_path):
    install(torchaudio_loads=True)
    (tmp_path / "venv").rename(tmp_path / ".venv")
    (tmp_path / "scripts").symlink_to(SCRIPTS)
    script = ["bash", tmp_path / "scripts/gpu_check.sh", "--quick"]
    subprocess.run(script, env=os.environ | {"PYTHON": ""}, check=True)
    assert (tmp_path / "asked").read_text().endswith(" benchmarks gpu_check --quick\n")


def test_the_quickstart_takes_a_folder_of_the_caller(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/arch").write_text("transnormer_t1")
    script = ["bash", SCRIPTS / "quickstart.sh", "--dir", "mine"]
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHON": "false"}}
    done = subprocess.run(script, capture_output=True, text=True, **options)
    process_refuses(done, f"{tmp_path}/mine holds a run of transnormer_t1", "--dir")
    (tmp_path / "mine/arch").rename(tmp_path / "mine/notes")
    done = subprocess.run(script, capture_output=True, text=True, **options)
    process_refuses(done, f"{tmp_path}/mine holds files of others", "--dir")
