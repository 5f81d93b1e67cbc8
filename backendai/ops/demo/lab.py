"""The invented lab of the demonstration: its people, machines, images and work. Nothing here is read by a real
deployment."""

from __future__ import annotations

from dataclasses import dataclass

from backendai.base.core.session_kinds import USUAL_KIND
from backendai.portal.web.sign_in.demo import ROLES

DOMAIN = "lab"
HERE = "this-machine"  # the resource group whose sessions really run
ADMIN = ROLES["superadmin"].email
SEED = 7
PROJECTS = ("vision", "language", "robotics", "biology", "class")


# The first of each project leads it.
PEOPLE = {
    "vision": ("Jonas Weber", "Hana Sato", "Luca Moretti", "Priya Nair", "Tomás Silva", "Ingrid Dahl"),
    "language": ("Amara Okafor", "Chen Wei", "Noor Haddad", "Elif Kaya", "Pavel Novák", "Zoë Martin"),
    "robotics": ("Ravi Kumar", "Yuki Tanaka", "Marta Kowalska", "Diego Ruiz", "Anja Vogel"),
    "biology": ("Lena Fischer", "Kofi Mensah", "Sara Lindberg", "Minh Tran", "Olga Petrova"),
    "class": ("Daniel Park", "Mina Choi", "Felix Braun", "Aisha Khan", "Théo Dubois", "Ines Costa", "Sam Taylor"),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated agent. ``devices``: how many of a slot; ``faulty``: the number of a device that does not work."""

    name: str
    group: str
    cpu: int
    mem: str
    slot: str = ""
    devices: int = 0
    model: str = ""
    memory_gib: int = 0
    faulty: int | None = None

    @property
    def slots(self) -> str:
        """The amounts as BACKENDAI_AGENT_SLOTS has them."""
        return f"cpu={self.cpu},mem={self.mem}"


_H100, _MIG, _AMD = "NVIDIA H100 80GB HBM3", "NVIDIA A100 MIG 1g.10gb", "AMD Instinct MI300X"
MACHINES = (
    *(Machine(f"h100-{n}", "h100", 96, "1t", "cuda.device", 8, _H100, 80, 5 if n == 3 else None) for n in range(1, 5)),
    *(Machine(f"mig-{n}", "shared-gpus", 64, "512g", "cuda.mig-1g.10gb", 14, _MIG, 10) for n in range(1, 3)),
    *(Machine(f"amd-{n}", "amd", 96, "768g", "rocm.device", 8, _AMD, 192) for n in range(1, 3)),
    *(Machine(f"cpu-{n}", "cpu", 128, "512g") for n in range(1, 5)),
)
GROUPS = {
    "h100": "Training: four machines with eight H100 each.",
    "shared-gpus": "Notebooks: slices of A100.",
    "amd": "Two machines with eight MI300X each.",
    "cpu": "Preparation and simulation.",
}
# Name, title, description; all are simulated.
IMAGES = (
    ("pytorch", "PyTorch 2.9", "PyTorch, torchvision, JupyterLab, TensorBoard."),
    ("jax", "JAX 0.8", "JAX, Flax, Optax, JupyterLab."),
    ("vllm", "vLLM 0.12", "Serves language models."),
    ("ros", "ROS 2", "Robot simulation."),
    ("alphafold", "AlphaFold 3", "Structures of proteins."),
)
PRESETS = (
    ("notebook", {"cpu": "4", "mem": "16g"}),
    ("one-gpu", {"cpu": "12", "mem": "96g", "cuda.device": "1"}),
    ("whole-machine", {"cpu": "90", "mem": "900g", "cuda.device": "8"}),
)


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of session that people start. ``minutes``: the least and most that it lasts; ``load``: how busy its
    devices are, 0 to 1; ``weight``: how often it is chosen; ``most``: how many of its group's run at once."""

    name: str
    project: str
    group: str
    image: str
    resources: dict[str, str]
    command: str = ""
    minutes: tuple[float, float] = (4, 30)
    load: float = 0.85
    weight: int = 1

    @property
    def session_type(self) -> str:
        """Batch with a command."""
        return "batch" if self.command else USUAL_KIND.name


GPU = {"cpu": "12", "mem": "96g", "cuda.device": "1"}
_FOUR = {"cpu": "48", "mem": "400g", "cuda.device": "4"}
_EIGHT = {"cpu": "90", "mem": "900g", "cuda.device": "8"}
SLICE = {"cpu": "4", "mem": "24g", "cuda.mig-1g.10gb": "1"}
_AMD_ONE = {"cpu": "10", "mem": "64g", "rocm.device": "1"}
_AMD_FOUR = {"cpu": "40", "mem": "256g", "rocm.device": "4"}
_FOLD, _SMALL, _TOKENS = ({"cpu": cpu, "mem": mem} for cpu, mem in (("32", "128g"), ("8", "32g"), ("24", "96g")))
_FAILS, _STARVES = "python train.py --lr 10 || exit 1", "python train.py || exit 137 # out-of-memory"
IDLE = Work("explore", "language", "h100", "jax", GPU, "", (15, 60), 0.03, 2)
WORK = (
    Work("resnet-train", "vision", "h100", "pytorch", GPU, "python train.py --model resnet50", (6, 25), 0.92, 5),
    Work("segment-anything", "vision", "h100", "pytorch", _FOUR, "torchrun train.py", (10, 40), 0.88, 3),
    Work("finetune-8b", "language", "h100", "pytorch", _EIGHT, "torchrun finetune.py", (12, 45), 0.95, 2),
    Work("eval-harness", "language", "h100", "pytorch", GPU, "python -m harness --tasks all", (4, 12), 0.7, 4),
    IDLE,
    Work("diverged", "vision", "h100", "pytorch", GPU, _FAILS, (1, 3), 0.6, 1),
    Work("too-large-batch", "vision", "h100", "pytorch", GPU, _STARVES, (1, 2), 0.9, 1),
    Work("notebook", "class", "shared-gpus", "pytorch", SLICE, "", (8, 40), 0.3, 6),
    Work("homework", "class", "shared-gpus", "pytorch", SLICE, "python homework.py", (2, 6), 0.5, 3),
    Work("grasping", "robotics", "amd", "ros", _AMD_ONE, "python simulate.py", (5, 20), 0.8, 4),
    Work("policy-search", "robotics", "amd", "jax", _AMD_FOUR, "python search.py", (8, 30), 0.9, 2),
    Work("fold", "biology", "cpu", "alphafold", _FOLD, "run_alphafold.sh", (6, 25), 0.9, 4),
    Work("analysis", "biology", "cpu", "jax", _SMALL, "", (10, 40), 0.15, 3),
    Work("tokenise", "language", "cpu", "pytorch", _TOKENS, "python tokenise.py", (3, 10), 0.95, 3),
)
# How many sessions of a group people keep at once, running and pending.
CROWD = {"h100": 26, "shared-gpus": 14, "amd": 9, "cpu": 11}
FILES = {
    "README.md": "# Street scenes\n\nImages of 12 cities, labelled. Split: 80/10/10.\n",
    "labels.csv": "image,label\n" + "".join(f"{n:05}.png,{('car', 'person', 'bike')[n % 3]}\n" for n in range(400)),
    "train.py": "import torch\n\n# The training loop of the demonstration.\nprint(torch.__version__)\n",
    "results/epoch-30.json": '{"loss": 0.214, "accuracy": 0.931}\n',
}
