"""github.com/kuangliu/pytorch-cifar."""

from __future__ import annotations

from pathlib import Path

from .case import Case, words

REPOSITORY = "kuangliu/pytorch-cifar"
COMMIT = "49b7aa97b0c12fe0d4e054670403a16b6b834ddd"
SHIMS = ("vision_stand_ins", "terminal_of_80_columns")
PARSED = "args = parser.parse_args()"
OPTIONS = "parser.add_argument('--batch_size', type=int)\nparser.add_argument('--save_dir')\n"


def train(home: Path) -> list[str]:
    """The README's command, with what it leaves constant."""
    return words("", lr=0.01, batch_size=12, save_dir=home / "out")


def model(text: str, epochs: int = 2) -> tuple[tuple[str, str], ...]:
    """Edits that choose one of the models that the script lists, and a horizon."""
    return (
        (PARSED, f"{OPTIONS}{PARSED}"),
        ("net = SimpleDLA()", f"net = {text}"),
        ("batch_size=128", "batch_size=args.batch_size"),
        ("'checkpoint'", "args.save_dir"),
        ("'./checkpoint/ckpt.pth'", "args.save_dir + '/ckpt.pth'"),
        ("start_epoch+200", f"start_epoch+{epochs}"),
    )


CASES = (Case("pytorch-cifar/main.py", train, shims=SHIMS, edits=model("LeNet()")),)
