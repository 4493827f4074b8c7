"""The commands, in the order in which help lists them."""

from __future__ import annotations

from cyclopts import App

from adjudge import __version__
from adjudge.cli.bench import bench
from adjudge.cli.calibrate import calibrate
from adjudge.cli.contract import contract
from adjudge.cli.demo import demo
from adjudge.cli.doctor import doctor
from adjudge.cli.explain import explain
from adjudge.cli.inspect import inspect
from adjudge.cli.replay import replay
from adjudge.cli.selfcheck import selfcheck
from adjudge.cli.task import task
from adjudge.cli.verify import verify

app = App(
    name="adjudge",
    help="Decides whether a GPU kernel keeps its contract.",
    version=__version__,
    # Rendering help as Markdown costs 0.1 s of imports.
    help_format="plaintext",
)
for command in (
    verify,
    bench,
    replay,
    inspect,
    explain,
    contract,
    task,
    selfcheck,
    calibrate,
    doctor,
    demo,
):
    app.command(command)
