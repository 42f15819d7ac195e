"""DF606: what torch.load refuses since weights_only."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

NOOP = [
    ("a state_dict", """
        torch.save(model.state_dict(), path)
        model.load_state_dict(torch.load(path))
        """),
    ("states in a dict", """
        torch.save({'model': model.state_dict(), 'step': step}, path)
        state = torch.load(path)
        """),
    ("states in a dict with a name", """
        state = {'model': model.state_dict(), 'step': step}
        torch.save(state, path)
        state = torch.load(path)
        """),
    ("it says so", "torch.save(args, path)\nargs = torch.load(path, weights_only=False)"),
    ("a checkpoint from elsewhere", """
        state = torch.load(args.checkpoint)
        model.load_state_dict(state)
        """),
    ("another file", """
        torch.save(args, os.path.join(folder, 'training_args.bin'))
        step = torch.load(os.path.join(folder, 'step.bin'))
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_file_that_torch_loads_as_it_is_is_left_alone(text: str) -> None:
    assert found("DF606", "import torch\n" + textwrap.dedent(text)) == []


@pytest.mark.parametrize(
    ("save", "load", "severity"),
    [
        pytest.param(
            "torch.save(args, os.path.join(folder, 'training_args.bin'))",
            "torch.load(os.path.join(last, 'training_args.bin')",
            "E",
            id="the arguments, in another folder",
        ),
        pytest.param(
            "data = TensorDataset(ids)\ntorch.save(data, path)",
            "torch.load(path, map_location='cpu'",
            "E",
            id="a data set",
        ),
        pytest.param(
            "class Example: pass\nfirst = Example()\ntorch.save(first, self.path)",
            "torch.load(self.path",
            "E",
            id="a class of the script's own",
        ),
        pytest.param(
            "state = {'model': model.state_dict(), 'args': args}\ntorch.save(state, path)",
            "torch.load(path",
            "E",
            id="the arguments beside a state_dict",
        ),
        pytest.param(
            "x = np.zeros(3)\ntorch.save(x, path)", "torch.load(path", "E", id="a NumPy array"
        ),
        pytest.param(
            "torch.save(features, path)", "torch.load(path", "W", id="of whatever is in a list"
        ),
    ],
)
def test_what_was_saved_whole_is_loaded_whole(save: str, load: str, severity: str) -> None:
    text = f"import os\nimport torch\nargs = parser.parse_args()\n{save}\nx = {load})\n"
    (finding,) = found("DF606", text)
    assert (finding.severity or Severity.ERROR).value == severity
    new = fixed("DF606", text)
    assert new == text.replace(f"x = {load})", f"x = {load}, weights_only=False)") != text
    assert found("DF606", new) == []


@pytest.mark.parametrize(
    "use",
    [
        pytest.param("model.eval()", id="a model"),
        pytest.param("DataLoader(model, batch_size=4)", id="a data set"),
    ],
)
def test_a_file_of_unknown_making_is_noted(use: str) -> None:
    (finding,) = found("DF606", f"import torch\nmodel = torch.load(path)\n{use}\n")
    assert (finding.severity, finding.edits) == (Severity.NOTE, ())


SAVE = "def store(folder):\n    torch.save({}, folder / 'x.pt')\n"


@pytest.mark.parametrize(
    ("saved", "taken"),
    [
        ("{'net': net, 'epoch': 1}", "found = {}\nnet = found['net']"),
        ("[net, optimizer]", "net, optimizer = {}"),
    ],
)
def test_a_whole_model_is_loaded_as_it_is_saved(saved: str, taken: str) -> None:
    text = f"import torch\n{SAVE.format(saved)}{taken.format('torch.load(path)')}\nnet(x)\n"
    (finding,) = found("DF606", text)
    assert finding.because == "a model comes from it whole, as line 3 saves it"
    assert "torch.load(path, weights_only=False)" in fixed("DF606", text)
    for other in (text.replace(saved, "net.state_dict()"), text.replace("net(x)", "y(net)")):
        assert not any(finding.edits for finding in found("DF606", other))


def test_the_script_loads_again_what_it_saved(tmp_path: Path) -> None:
    text = textwrap.dedent("""\
        import argparse
        import os
        import numpy as np
        import torch
        from torch.utils.data import TensorDataset

        class Features:
            def __init__(self, ids):
                self.ids = ids

        def cached(folder):
            path = os.path.join(folder, 'features')
            if os.path.exists(path):
                return torch.load(path)
            made = [Features([1, 2]), TensorDataset(torch.ones(2)), np.ones(2),
                    argparse.Namespace(seed=1)]
            torch.save(made, path)
            return made
        """)
    scripts: list[dict[str, Any]] = []
    for code in (text, fixed("DF606", text)):
        scripts.append({"__name__": "__main__"})
        exec(code, scripts[-1])
    old, new = scripts
    import __main__

    __main__.Features = old["Features"]  # where pickle looks for it
    try:
        old["cached"](tmp_path)
        with pytest.raises(pickle.UnpicklingError):
            old["cached"](tmp_path)
        first, data, array, names = new["cached"](tmp_path)
    finally:
        del __main__.Features
    assert (first.ids, len(data), array.tolist(), names.seed) == ([1, 2], 2, [1.0, 1.0], 1)


def test_one_method_loads_by_the_same_path_what_another_saved() -> None:
    text = """\
import os
import torch
class Trainer:
    def save(self):
        torch.save(self.args, os.path.join(self.args.folder, "args.bin"))
    def load(self):
        self.args = torch.load(os.path.join(self.args.folder, "args.bin"))
"""
    assert '"args.bin"), weights_only=False)' in fixed("DF606", text)
