"""Python packages that only a comparison needs: taken where they are, else installed for one run.

    from throwaway import environment
    environment(["tensorboard"], modules=["tensorboard"])
    import tensorboard
"""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

MADE = "TRIREME_THROWAWAY"  # set inside the environment that was made, so none is made in it


def environment(packages, modules):
    """Goes on if all modules can be imported; else runs this script again where they can."""
    if all(importlib.util.find_spec(module) for module in modules):
        return
    if MADE in os.environ:
        sys.exit(f"the packages {' '.join(packages)} were installed, but a module of them is missing")
    folder = tempfile.mkdtemp(prefix="throwaway-")
    print(f"installing {', '.join(packages)} into {folder}", flush=True)
    python = os.path.join(folder, "bin", "python")
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        sys.exit(subprocess.run([python, *sys.argv], env={**os.environ, MADE: folder}).returncode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
