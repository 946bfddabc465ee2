#!/usr/bin/python3
"""Makes the two dumps that quickstart.ipynb reads and runs the notebook.

    notebooks_export/execute.py build/user/src/cli/dsv4-oracle            # runs it and keeps the output
    notebooks_export/execute.py build/user/src/cli/dsv4-oracle --check    # runs it and compares its text output

Needs python3-h5py, python3-nbclient, python3-ipykernel and python3-matplotlib.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def make_dumps(oracle, folder):
    """The scenario of scripts/quickstart, dumped by the reference engine and by the wide engine on its inputs."""
    scenario = os.path.join(folder, "trace.yaml")
    trace = os.path.join(ROOT, "data/traces/mooncake-conversation-1000.jsonl")
    commands = [
        ["import-trace", trace, "--requests", "4", "--scale", "128", "--preset", "tiny", "--layers", "swa,csa,hca",
         "--output", scenario],
        ["replay", scenario, "--dump", os.path.join(folder, "quickstart.h5")],
        ["replay", scenario, "--engine", "wide", "--against", "reference", "--feed", "reference", "--no-check-writes",
         "--dump", os.path.join(folder, "wide.h5")],
    ]
    for command in commands:
        subprocess.run([oracle, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def join_streams(cell):
    """What a cell prints arrives in pieces that depend on timing; one piece is kept."""
    joined = []
    for output in cell.get("outputs", []):
        last = joined[-1] if joined else None
        if last and output["output_type"] == last["output_type"] == "stream" and output["name"] == last["name"]:
            last["text"] += output["text"]
        else:
            joined.append(output)
    if "outputs" in cell:
        cell["outputs"] = joined


def text_outputs(notebook):
    """Everything that was printed, by cell."""
    return [[output["text"] for output in cell.get("outputs", []) if output["output_type"] == "stream"]
            for cell in notebook.cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("oracle", help="the dsv4-oracle program")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the printed text differs")
    arguments = parser.parse_args()
    path = os.path.join(HERE, "quickstart.ipynb")
    kept = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        try:
            make_dumps(os.path.abspath(arguments.oracle), folder)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{' '.join(error.cmd)}: exit {error.returncode}\n{error.stderr}")
        os.environ.update(DSV4_DUMPS=folder, DSV4_NOTEBOOKS=HERE, PYTHONDONTWRITEBYTECODE="1",
                          PYDEVD_DISABLE_FILE_VALIDATION="1")  # the kernel's debugger warns otherwise
        NotebookClient(fresh, timeout=300, kernel_name="python3").execute()
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)  # times
        join_streams(cell)
    if arguments.check:
        for number, (before, after) in enumerate(zip(text_outputs(kept), text_outputs(fresh))):
            if before != after:
                sys.exit(f"{path}: cell {number} prints\n{''.join(after)}\nkept output is\n{''.join(before)}")
        print(f"{path}: runs, prints what is kept")
    else:
        nbformat.write(fresh, path)


main()
