"""Example documents of pipelines. Each runs unchanged, so a new user sees a run before writing a program."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise

from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image

_USUAL = "python"


@dataclass(frozen=True, slots=True)
class Example:
    """An example document with its name; its image is ``python``."""

    name: str
    title: str | Promise
    text: str


EXAMPLES = (
    Example(
        "steps",
        _("Steps and values"),
        """\
kind: pipeline
defaults: {image: python, resources: {cpu: 1, mem: 512m}}  # for every step that says nothing else
steps:
  prepare:
    startup_command: echo prepared
  train:
    after: [prepare]          # starts when prepare has succeeded
    matrix: {lr: [0.1, 0.01], seed: [1, 2, 3]}  # one session for each of the 6 combinations
    at_once: 4                # at most 4 of them at the same time
    startup_command: echo "lr $PARAM_LR, seed $PARAM_SEED"; sleep 10  # your program here
  report:
    after: {train: any}       # starts when all of train have ended, well or not
    startup_command: echo finished
""",
    ),
    Example(
        "parameters",
        _("Parameters"),
        """\
kind: pipeline
params:                       # asked for before the launch; programs read $PARAM_EPOCHS and $PARAM_MODE
  epochs: {type: integer, title: Epochs, default: 3, min: 1, max: 100}
  mode: {type: choice, title: Mode, choices: [fast, full], default: fast}
  memory: {type: size, title: Memory of each step, default: 512m}
defaults: {image: python, resources: {cpu: 1, mem: "${{ params.memory }}"}}
steps:
  train:
    startup_command: echo "$PARAM_EPOCHS epochs, $PARAM_MODE"
  check:
    after: [train]
    startup_command: echo checked
""",
    ),
    Example(
        "files",
        _("Files between steps"),
        """\
kind: pipeline
params:
  folder: {type: folder, title: Folder for the results}
workspace: {folder: "${{ params.folder }}"}  # every session mounts it and writes to $STEP_OUT
defaults: {image: python, resources: {cpu: 1, mem: 512m}}
steps:
  prepare:
    startup_command: echo 42 > "$STEP_OUT/data.txt"
  train:
    after: [prepare]
    startup_command: cat "$IN_PREPARE/data.txt" > "$STEP_OUT/model.txt"  # what prepare has written
""",
    ),
    Example(
        "failures",
        _("Failures and clean-up"),
        """\
kind: pipeline
on_failure: drain             # after a failure launch nothing new; stop: also end what runs; continue: go on
defaults: {image: python, resources: {cpu: 1, mem: 512m}}
steps:
  fetch:
    retry: {times: 3, wait: 10s}  # launch it again when it fails
    startup_command: echo fetched
  train:
    after: [fetch]
    array: 10                 # 10 sessions; $BACKENDAI_ARRAY_INDEX counts from 0
    probe: 1                  # try the first one before the others
    give_up_after: 20%        # stop this step when so many have failed
    startup_command: echo "element $BACKENDAI_ARRAY_INDEX"
finally: {startup_command: echo cleaned up}  # runs at the end, also after failures
""",
    ),
)

# Names of keys, and what they say.
KEYS: tuple[tuple[str, str | Promise], ...] = (
    (
        "defaults",
        _("keys of a launch request for every step: image, resources, environ, mounts, project, resource_group …"),
    ),
    (
        "steps",
        _("each step under its name, with its startup_command and what differs from defaults"),
    ),
    (
        "after",
        _("the steps that it waits for, as a list; or each with success, failure, any, or each (element by element)"),
    ),
    (
        "array, matrix, foreach",
        _("more than one session: a number, lists of values by name, or a list; programs read $PARAM_…"),
    ),
    (
        "at_once, probe, give_up_after",
        _("how many run at the same time, how many are tried first, and after how many failures a step ends"),
    ),
    (
        "retry",
        _("how often and when a failed session is launched again, and with how much more"),
    ),
    (
        "template",
        _("a template of a session that the step starts from, with its parameters"),
    ),
    (
        "params",
        _("what is asked for before the launch"),
    ),
    (
        "workspace",
        _("a folder in which steps hand files to each other: $STEP_OUT and $IN_STEP"),
    ),
    (
        "finally, on_failure",
        _("a last step that always runs, and whether the run continues, drains or stops after a failure"),
    ),
)


def example_text(name: str, user: User) -> str:
    """Return the example of this name, else the first, with an image that the user may use; one query."""
    found = next((one for one in EXAMPLES if one.name == name), EXAMPLES[0])
    names = list(Image.objects.usable_by(user).order_by("name").values_list("name", flat=True)[:200])
    image = _USUAL if _USUAL in names or not names else names[0]
    return found.text.replace(f"image: {_USUAL},", f"image: {image},")
