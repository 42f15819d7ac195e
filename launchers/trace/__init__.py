"""The tracer, which observes a training script from inside its process, and the trace reader.

``python -m ddpfix.launchers.trace --out DIR [options] SCRIPT ARGS…`` runs SCRIPT as ``python SCRIPT
ARGS…`` would and writes ``DIR/rank{RANK}.jsonl`` (see `events`). It also works as the module of
``accelerate launch --multi_gpu --module`` and of ``torchrun -m``. Nothing imported here needs
torch.

All that rides in a rank keeps to Python 3.8 and its library, as the ranks may run in a Python other
than ddpfix's own. `read` is ddpfix's: it never runs there.
"""
