"""What a module of the program holds that the script may not use is no error (DF103, 305, 604)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import RULES
from ddpfix.patcher.api import Severity, read_program

LIBRARY = {
    "DF103": "args.rank = args.node_rank * args.gpus_per_node + args.local_rank",
    "DF305": "return isinstance(args.model, torch.nn.DataParallel)",
    "DF604": """if torch.distributed.get_rank() == 0:
        torch.save(args.state, args.path)
    return torch.load(args.path, map_location='cpu')""",
}
SCRIPT = """
import torch
from library import act
torch.distributed.init_process_group('nccl')
model = torch.nn.parallel.DistributedDataParallel(net)
for batch in data:
    model(batch).backward()
    optimizer.step()
{line}
"""


@pytest.mark.parametrize(
    ("line", "severity"), [("act(args)", Severity.ERROR), ("pass", Severity.DEGRADED)]
)
@pytest.mark.parametrize("code", LIBRARY)
def test_what_nobody_is_seen_to_call(
    code: str, line: str, severity: Severity, tmp_path: Path
) -> None:
    (tmp_path / "library.py").write_text(f"import torch\ndef act(args):\n    {LIBRARY[code]}\n")
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(line=line))
    (found,) = RULES[code].findings(read_program(script))
    assert (found.severity or Severity.ERROR) is severity
