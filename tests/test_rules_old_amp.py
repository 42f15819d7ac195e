"""DF802 and DF803: deprecated names of torch's mixed precision, and apex's FP16_Optimizer."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from cases import changes, fixed, found

NEW_NAMES = [
    ("no argument", "torch.cuda.amp.autocast()", "torch.amp.autocast('cuda')"),
    ("by position", "torch.cuda.amp.autocast(args.fp16, torch.bfloat16)",
     "torch.amp.autocast('cuda', enabled=args.fp16, dtype=torch.bfloat16)"),
    ("by name", "torch.cuda.amp.autocast(enabled=args.fp16)",
     "torch.amp.autocast('cuda', enabled=args.fp16)"),
    ("on a CPU", "torch.cpu.amp.autocast()", "torch.amp.autocast('cpu')"),
    ("a scaler", "torch.cuda.amp.GradScaler()", "torch.amp.GradScaler('cuda')"),
    ("a scaler's scale", "torch.cuda.amp.GradScaler(2.0, enabled=on)",
     "torch.amp.GradScaler('cuda', 2.0, enabled=on)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=name) for name, old, new in NEW_NAMES]
)
def test_old_names_of_mixed_precision_give_way_to_new_ones(old: str, new: str) -> None:
    for text in ("import torch\nx = {}\n", "import torch\nwith {}:\n    pass\n"):
        assert fixed("DF802", text.format(old)) == text.format(new)
        assert found("DF802", text.format(new)) == []


def test_new_names_are_imported_where_the_old_ones_were() -> None:
    before = "from torch.cuda.amp import autocast, GradScaler as S\nwith autocast():\n    s = S()\n"
    after = "from torch.amp import autocast, GradScaler as S\nwith autocast('cuda'):\n"
    assert fixed("DF802", before) == f"{after}    s = S('cuda')\n"
    assert found("DF802", fixed("DF802", before)) == []


def test_old_names_that_are_imported_in_need_and_called_as_new_ones_stay() -> None:
    imports = "try:\n    from torch.amp import autocast\nexcept ImportError:\n"
    imports += "    from torch.cuda.amp import autocast\n"
    for call in ("autocast('cuda', enabled=True)", "autocast(device_type='cuda')"):
        assert found("DF802", f"{imports}with {call}:\n    pass\n") == []


def test_a_module_s_alias_gives_way_to_torch() -> None:
    before = "from torch.cuda import amp\nscaler = amp.GradScaler()\n"
    after = "from torch.cuda import amp\nimport torch\nscaler = torch.amp.GradScaler('cuda')\n"
    assert fixed("DF802", before) == after


def test_what_the_old_names_make_is_what_the_new_ones_make() -> None:
    import torch

    for _, old, new in NEW_NAMES:
        names = {"torch": torch, "args": SimpleNamespace(fp16=False), "on": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = eval(old, names), eval(new, names)
        assert isinstance(first, type(second))
        keys = ("device", "fast_dtype", "_enabled", "_cache_enabled", "_init_scale", "_device")
        assert [getattr(first, k, None) for k in keys] == [getattr(second, k, None) for k in keys]


REPORTED_NAMES = [
    ("a decorator", "import torch\n@torch.cuda.amp.autocast()\ndef f():\n    pass\n"),
    ("unpacked", "import torch\nx = torch.cuda.amp.autocast(*options)\n"),
    ("handed on", "from torch.cuda.amp import autocast\nx = autocast()\nmake(autocast)\n"),
    ("imported with others",
     "from torch.cuda.amp import autocast, custom_fwd\nx = autocast()\n"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED_NAMES])
def test_names_that_are_reported_and_not_touched(text: str) -> None:
    assert [finding.edits for finding in found("DF802", text)] == [()]


# ---- FP16_Optimizer

MAKING = """\
    if args.fp16:
        try:
            from apex.optimizers import FP16_Optimizer
            from apex.optimizers import FusedAdam
        except ImportError:
            raise ImportError("Please install apex")
        optimizer = FusedAdam(model.parameters(), lr=args.rate, bias_correction=False)
        if args.loss_scale == 0:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        else:
            optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.loss_scale)
    else:
        # plain
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=args.rate)
"""
WRAPPING = """\
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    if args.fp16:
        from apex.fp16_utils import FP16_Optimizer
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
"""
SCRIPT = f"""\
import torch
import torch.nn.functional as F

def main(args):
    args.device = torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    if args.fp16:
        model.half()
    loader = [(torch.randn(3, 4), torch.randn(3, 1)) for _ in range(6)]
{MAKING}
    losses = []
    model.train()
    for step, (inputs, labels) in enumerate(loader):
        outputs = model(inputs)
        loss = F.mse_loss(outputs, labels)
        if args.accumulation > 1:
            loss = loss / args.accumulation
        if args.fp16:
            optimizer.backward(loss)
        else:
            loss.backward()
        losses.append(loss.item())
        if (step + 1) % args.accumulation == 0:
            if args.fp16:
                # FusedAdam has no schedule of its own
                rate = args.rate * (1 - step / 6)
                for group in optimizer.param_groups:
                    group['lr'] = rate
            if args.fp16:
                optimizer.clip_master_grads(0.05)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
    return losses, model

if __name__ == "__main__":
    args = parser.parse_args()
    main(args)
"""


def run(text: str, *, fp16: bool) -> tuple[list[float], Any]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(text, names)
    args = SimpleNamespace(fp16=fp16, accumulation=2, rate=0.1, loss_scale=0)
    losses, model = names["main"](args)
    return losses, model


REPAIRED = """\
@@ -7,21 +7,8 @@
     model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
-    if args.fp16:
-        model.half()
     loader = [(torch.randn(3, 4), torch.randn(3, 1)) for _ in range(6)]
-    if args.fp16:
-        try:
-            from apex.optimizers import FP16_Optimizer
-            from apex.optimizers import FusedAdam
-        except ImportError:
-            raise ImportError("Please install apex")
-        optimizer = FusedAdam(model.parameters(), lr=args.rate, bias_correction=False)
-        if args.loss_scale == 0:
-            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
-        else:
-            optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.loss_scale)
-    else:
-        # plain
-        optimizer = torch.optim.SGD(
-            model.parameters(),
-            lr=args.rate)
+    # plain
+    optimizer = torch.optim.SGD(
+        model.parameters(),
+        lr=args.rate)
+    scaler = torch.amp.GradScaler(args.device.type, enabled=args.fp16)

@@ -30,4 +17,5 @@
     for step, (inputs, labels) in enumerate(loader):
-        outputs = model(inputs)
-        loss = F.mse_loss(outputs, labels)
+        with torch.amp.autocast(args.device.type, enabled=args.fp16):
+            outputs = model(inputs)
+            loss = F.mse_loss(outputs, labels)
         if args.accumulation > 1:
@@ -35,3 +23,3 @@
         if args.fp16:
-            optimizer.backward(loss)
+            scaler.scale(loss).backward()
         else:
@@ -41,11 +29,8 @@
             if args.fp16:
-                # FusedAdam has no schedule of its own
-                rate = args.rate * (1 - step / 6)
-                for group in optimizer.param_groups:
-                    group['lr'] = rate
-            if args.fp16:
-                optimizer.clip_master_grads(0.05)
+                scaler.unscale_(optimizer)
+                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
             else:
                 torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
-            optimizer.step()
+            scaler.step(optimizer)
+            scaler.update()
             optimizer.zero_grad()
"""


def test_the_wrapper_of_the_optimizer_goes_exactly_like_this() -> None:
    new = fixed("DF803", SCRIPT)
    assert changes(SCRIPT, new) == REPAIRED
    assert found("DF803", new) == []


@pytest.mark.parametrize("making", [MAKING, WRAPPING], ids=["in a branch", "around torch's"])
def test_with_the_flag_it_trains_where_it_could_only_raise(making: str) -> None:
    text = SCRIPT.replace(MAKING, making)
    new = fixed("DF803", text)
    with pytest.raises(ImportError):
        run(text, fp16=True)
    full, _ = run(text, fp16=False)
    assert run(new, fp16=False)[0] == full
    losses, model = run(new, fp16=True)
    assert losses != full
    assert losses == pytest.approx(full, rel=0.05)
    assert {str(weight.dtype) for weight in model.parameters()} == {"torch.float32"}


REPORTED = [
    ("an optimizer of apex's alone", SCRIPT.replace(MAKING, WRAPPING.replace(
        "        optimizer = FP16", "        optimizer = Other(1)\n        optimizer = FP16"))),
    ("inputs are halved too", SCRIPT.replace("model(inputs)", "model(inputs.half())")),
    ("the learning rate is read", SCRIPT.replace(
        "losses.append(loss.item())", "losses.append(rate)")),
    ("more under the flag", SCRIPT.replace(
        "        model.half()", "        model.half()\n        prepare(model)")),
    ("gradients are handled by hand", SCRIPT.replace(
        "optimizer.backward(loss)", "optimizer.backward(loss, update_master_grads=False)")),
    ("clipped whatever the flag", SCRIPT.replace(
        "            optimizer.step()",
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n"
        "            optimizer.step()")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED])
def test_a_wrapper_that_is_reported_and_not_touched(text: str) -> None:
    assert text != SCRIPT
    assert [finding.edits for finding in found("DF803", text)] == [()]
