"""DF801: apex's mixed precision becomes torch's."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cases import changes, fixed, found
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

INITIALIZE = """\
    if args.fp16:
        try:
            from apex import amp
        except ImportError:
            raise ImportError("Please install apex")
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)
"""
SCRIPT = f"""\
import torch
import torch.nn.functional as F

def train(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
{INITIALIZE}
    losses = []
    for epoch in range(2):
        for step, batch in enumerate(loader):
            inputs, labels = batch
            # the forward pass
            logits = model(inputs)

            loss = F.mse_loss(logits, labels)
            if args.accumulation > 1:
                loss = loss / args.accumulation
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)
            else:
                loss.backward()
                if (step + 1) % args.accumulation == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            losses.append(loss.item())
            if (step + 1) % args.accumulation == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    return losses

def main(args):
    args.device = torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    loader = [(torch.randn(3, 4), torch.randn(3, 1)) for _ in range(6)]
    return train(args, model, loader), model

if __name__ == "__main__":
    args = parser.parse_args()
    main(args)
"""

NOOP = [
    ("torch's own", """
        scaler = torch.amp.GradScaler(enabled=args.fp16)
        scaler.scale(loss).backward()
        """),
    ("a name of the script's own", "import mine as amp\namp.initialize(model)"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_torchs_own_mixed_precision_is_left_alone(text: str) -> None:
    assert found("DF801", textwrap.dedent(text)) == []


REPAIRED = """\
@@ -6,8 +6,3 @@
     scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
-    if args.fp16:
-        try:
-            from apex import amp
-        except ImportError:
-            raise ImportError("Please install apex")
-        model, optimizer = amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)
+    scaler = torch.amp.GradScaler(args.device.type, enabled=args.fp16)

@@ -18,5 +13,6 @@
             # the forward pass
-            logits = model(inputs)
+            with torch.amp.autocast(args.device.type, enabled=args.fp16):
+                logits = model(inputs)

-            loss = F.mse_loss(logits, labels)
+                loss = F.mse_loss(logits, labels)
             if args.accumulation > 1:
@@ -24,5 +20,3 @@
             if args.fp16:
-                with amp.scale_loss(loss, optimizer) as scaled_loss:
-                    scaled_loss.backward()
-                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)
+                scaler.scale(loss).backward()
             else:
@@ -33,4 +27,10 @@
             if (step + 1) % args.accumulation == 0:
-                optimizer.step()
-                scheduler.step()
+                if args.fp16:
+                    scaler.unscale_(optimizer)
+                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
+                loss_scale = scaler.get_scale()  # falls where a step is skipped
+                scaler.step(optimizer)
+                scaler.update()
+                if scaler.get_scale() >= loss_scale:
+                    scheduler.step()
                 optimizer.zero_grad()
@@ -47,2 +47,3 @@
     args = parser.parse_args()
+    args.fp16 = args.fp16 and args.fp16_opt_level != 'O0'
     main(args)
"""
CLIPPED_BESIDE_THE_STEP = """\
@@ -6,8 +6,3 @@
     scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
-    if args.fp16:
-        try:
-            from apex import amp
-        except ImportError:
-            raise ImportError("Please install apex")
-        model, optimizer = amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)
+    scaler = torch.amp.GradScaler(args.device.type, enabled=args.fp16)

@@ -18,5 +13,6 @@
             # the forward pass
-            logits = model(inputs)
+            with torch.amp.autocast(args.device.type, enabled=args.fp16):
+                logits = model(inputs)

-            loss = F.mse_loss(logits, labels)
+                loss = F.mse_loss(logits, labels)
             if args.accumulation > 1:
@@ -24,4 +20,3 @@
             if args.fp16:
-                with amp.scale_loss(loss, optimizer) as scaled_loss:
-                    scaled_loss.backward()
+                scaler.scale(loss).backward()
             else:
@@ -31,7 +26,11 @@
                 if args.fp16:
-                    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)
+                    scaler.unscale_(optimizer)
+                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
                 else:
                     torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
-                optimizer.step()
-                scheduler.step()
+                loss_scale = scaler.get_scale()  # falls where a step is skipped
+                scaler.step(optimizer)
+                scaler.update()
+                if scaler.get_scale() >= loss_scale:
+                    scheduler.step()
                 optimizer.zero_grad()
@@ -48,2 +47,3 @@
     args = parser.parse_args()
+    args.fp16 = args.fp16 and args.fp16_opt_level != 'O0'
     main(args)
"""


def test_apex_gives_way_to_torch_exactly_like_this() -> None:
    new = fixed("DF801", SCRIPT)
    assert changes(SCRIPT, new) == REPAIRED
    assert found("DF801", new) == []


SCORER = """\
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers")
    args = parser.parse_args()
    print(args.answers)


if __name__ == "__main__":
    main()
"""


def test_what_an_imported_module_parses_as_a_script_of_its_own_is_left_alone(
    tmp_path: Path,
) -> None:
    script, scorer = tmp_path / "train.py", tmp_path / "scorer.py"
    script.write_text(f"import scorer\n{SCRIPT}")
    scorer.write_text(SCORER)
    texts = {change.source.path.name: change.text for change in patch(script).changes}
    assert "args.fp16_opt_level != 'O0'" in texts["train.py"]
    assert "scorer.py" not in texts


def run(text: str, *, fp16: bool, accumulation: int = 2) -> tuple[list[float], Any]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(text, names)
    args = SimpleNamespace(
        fp16=fp16, fp16_opt_level="O1", accumulation=accumulation, max_norm=0.05
    )  # fmt: skip
    losses, model = names["main"](args)
    return losses, model


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_without_the_flag_every_loss_is_the_same_to_the_bit(accumulation: int) -> None:
    old, _ = run(SCRIPT, fp16=False, accumulation=accumulation)
    new, _ = run(fixed("DF801", SCRIPT), fp16=False, accumulation=accumulation)
    assert new == old


def test_with_the_flag_it_trains_in_low_precision_where_it_could_only_raise() -> None:
    with pytest.raises(ImportError):
        run(SCRIPT, fp16=True)
    full, _ = run(SCRIPT, fp16=False)
    losses, model = run(fixed("DF801", SCRIPT), fp16=True)
    assert losses != full
    assert losses == pytest.approx(full, rel=0.05)
    assert {str(weight.dtype) for weight in model.parameters()} == {"torch.float32"}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_what_is_clipped_is_not_scaled(accumulation: int) -> None:
    """A scale is a power of 2: with it and without, the same losses to the bit."""
    new = fixed("DF801", SCRIPT)
    unscaled = new.replace(
        "GradScaler(args.device.type, enabled=args.fp16)", "GradScaler(enabled=0)"
    )
    assert unscaled != new
    plain, _ = run(unscaled, fp16=True, accumulation=accumulation)
    assert run(new, fp16=True, accumulation=accumulation)[0] == plain
    unclipped = new.replace("                    scaler.unscale_(optimizer)\n", "")
    assert unclipped != new
    assert run(unclipped, fp16=True, accumulation=accumulation)[0] != plain


BESIDE_THE_STEP = SCRIPT.replace(
    "                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)\n",
    "",
).replace(
    """\
                if (step + 1) % args.accumulation == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
""",
    "",
).replace(
    "                optimizer.step()\n",
    """\
                if args.fp16:
                    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)
                else:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
                optimizer.step()
""",
)  # fmt: skip


def test_clipping_beside_the_step_stays_there() -> None:
    new = fixed("DF801", BESIDE_THE_STEP)
    assert changes(BESIDE_THE_STEP, new) == CLIPPED_BESIDE_THE_STEP
    for fp16 in (False, True):
        assert run(new, fp16=fp16)[0] == run(fixed("DF801", SCRIPT), fp16=fp16)[0]
    assert run(BESIDE_THE_STEP, fp16=False)[0] == run(SCRIPT, fp16=False)[0]


def test_what_is_clipped_may_have_a_name() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)"
    (margin,) = {line.partition("torch")[0] for line in SCRIPT.split("\n") if clip in line}
    named = f"weights = amp.master_params(optimizer)\n{margin}{clip}".replace(
        "_(amp.master_params(optimizer)", "_(weights"
    )
    assert fixed("DF801", SCRIPT.replace(clip, named)) == fixed("DF801", SCRIPT)
    elsewhere = SCRIPT.replace(clip, f"{named}\n{margin}print(weights)")
    assert fixed("DF801", elsewhere) == elsewhere


def test_a_test_around_clipping_stays_around_it() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)"
    (margin,) = {line.partition("torch")[0] for line in SCRIPT.split("\n") if clip in line}
    tested = SCRIPT.replace(clip, f"if args.max_norm > 0:\n{margin}    {clip}")
    plain = (
        "                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)\n"
    )
    before, after = fixed("DF801", SCRIPT).rsplit(plain, 1)
    kept = f"                    if args.max_norm > 0:\n    {plain}"
    assert fixed("DF801", tested) == before + kept + after


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("from apex import amp\n", id="plain"),
        pytest.param("try:\n    from apex import amp\nexcept ImportError:\n    pass\n", id="tried"),
    ],
)
def test_an_import_at_the_top_goes_too(line: str) -> None:
    text = SCRIPT.replace("import torch\n", f"import torch\n{line}", 1).replace(
        INITIALIZE.replace("        model, optimizer = amp.initialize", "#").partition("#")[0],
        "    if args.fp16:\n",
    )
    assert text.count("apex") == 1
    assert "apex" not in fixed("DF801", text)


def test_the_state_of_the_loss_scale_goes_on_being_kept(tmp_path: Path) -> None:
    path = tmp_path / "amp.pt"
    save = f"    if args.fp16:\n        torch.save(amp.state_dict(), {str(path)!r})\n"
    text = SCRIPT.replace("    return losses", f"{save}    return losses")
    new = fixed("DF801", text)
    run(new, fp16=False)
    assert not path.exists()
    run(new, fp16=True)
    assert torch.load(path)["_growth_tracker"] == 6  # 12 batches in pairs


REPORTED = [
    ("clipped twice", SCRIPT.replace(
        "                optimizer.step()",
        "                if args.fp16:\n                    torch.nn.utils.clip_grad_norm_("
        "amp.master_params(optimizer), 1)\n                optimizer.step()")),
    ("clipped elsewhere", SCRIPT.replace(
        "            losses.append(loss.item())",
        "            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1)")),
    ("an optimizer of apex's", SCRIPT.replace(
        "    losses = []", "    optimizer = FP16_Optimizer(optimizer)\n    losses = []").replace(
        "import torch\n", "import torch\nfrom apex.optimizers import FP16_Optimizer\n", 1)),
    ("a state that is saved", SCRIPT.replace(
        "    return losses", "    torch.save(amp.state_dict(), 'amp.pt')\n    return losses")),
    ("two optimizers step", SCRIPT.replace(
        "                optimizer.zero_grad()", "                optimizer.step()")),
    ("more than a try under the flag", SCRIPT.replace(
        "        model, optimizer = amp", "        model.half()\n        model, optimizer = amp")),
    ("another model is called", SCRIPT.replace("model(inputs)", "other(inputs)")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED])
def test_apex_in_another_shape_is_reported_and_not_touched(text: str) -> None:
    assert text != SCRIPT
    findings = found("DF801", text)
    assert [(f.edits, f.severity) for f in findings] == [((), Severity.DEGRADED)]
