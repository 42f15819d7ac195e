"""Public training scripts with the commands of their own READMEs, and what is right of each.

The commands are read from the repositories when the benchmark runs. What stands here are facts,
worked out by hand from the scripts: the batch of one optimizer step, and the options by role.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

HF = {
    "train_batch": "--per_gpu_train_batch_size",
    "eval_batch": "--per_gpu_eval_batch_size",
    "accumulation": "--gradient_accumulation_steps",
    "output": "--output_dir",
    "learning_rate": "--learning_rate",
    "epochs": "--num_train_epochs",
    "max_steps": "--max_steps",
    "sequence_length": "--max_seq_length",
    "seed": "--seed",
}
"""The options of transformers' examples of 2019 and their descendants."""

XGLUE = HF | {
    "train_batch": "--train_batch_size",
    "eval_batch": "--eval_batch_size",
    "sequence_length": "--block_size",
    "epochs": "--num_train_epochs",
}
CODE = {role: flag for role, flag in XGLUE.items() if role not in ("accumulation", "max_steps")} | {
    "sequence_length": "--code_length"
}
CONTRASTIVE = {
    "train_batch": "--batch_size",
    "learning_rate": "--learning_rate",
    "epochs": "--epochs",
}


@frozen
class ReadmeCommand:
    """A command: the file that has it and the words that its first line holds.

    `folder` is where the README starts it. `filled` are values for the shell variables in it; all
    others become a word. `total` is the batch of one optimizer step of that command over all its
    processes. `roles` are the options by role; those with two right answers are in `either`.
    """

    folder: str
    script: str
    source: str
    begins: str
    total: int
    roles: Mapping[str, str]
    filled: Mapping[str, str] = field(factory=dict)
    either: Mapping[str, tuple[str, ...]] = field(factory=dict)

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.script}"


def without(roles: dict[str, str], *names: str) -> dict[str, str]:
    """The roles but these, which the script has no option for."""
    return {role: flag for role, flag in roles.items() if role not in names}


NER = without(HF, "sequence_length")
LENGTHS = {"sequence_length": ("--train_max_seq_length", "--eval_max_seq_length", "")}
CODES = {"sequence_length": ("--code_length", "--nl_length", "--block_size")}

COMMANDS = (
    ReadmeCommand(
        "SupContrast", "main_supcon.py", "README.md", "main_supcon.py", 1024, CONTRASTIVE
    ),
    ReadmeCommand("SupContrast", "main_ce.py", "README.md", "main_ce.py", 1024, CONTRASTIVE),
    ReadmeCommand("SupContrast", "main_linear.py", "README.md", "main_linear.py", 512, CONTRASTIVE),
    *(
        ReadmeCommand(
            "BERT-NER-Pytorch",
            f"run_ner_{head}.py",
            f"scripts/run_ner_{head}.sh",
            "python run_ner",
            24,
            NER,
            either=LENGTHS,
        )
        for head in ("crf", "softmax", "span")
    ),
    ReadmeCommand(
        "CLUE/baselines/models_pytorch/classifier_pytorch",
        "run_classifier.py",
        "run_classifier_tnews.sh",
        "python run_classifier.py",
        16,
        HF,
    ),
    ReadmeCommand(
        "CLUE/baselines/models_pytorch/mrc_pytorch",
        "run_c3.py",
        "run_mrc_c3.sh",
        "python run_c3.py",
        24,
        without(XGLUE, "max_steps") | {"sequence_length": "--max_seq_length"},
    ),
    ReadmeCommand(
        "CLUE/baselines/models_pytorch/mrc_pytorch",
        "run_multichoice_mrc.py",
        "run_mrc_chid.sh",
        "python run_multichoice",
        24,
        without(XGLUE, "max_steps")
        | {"sequence_length": "--max_seq_length", "eval_batch": "--predict_batch_size"},
    ),
    ReadmeCommand(
        "CLUE/baselines/models_pytorch/mrc_pytorch",
        "run_mrc.py",
        "run_mrc_cmrc2018.sh",
        "python run_mrc.py",
        32,
        {
            "train_batch": "--n_batch",
            "output": "--checkpoint_dir",
            "learning_rate": "--lr",
            "epochs": "--train_epochs",
            "sequence_length": "--max_seq_length",
            "seed": "--seed",
        },
    ),
    ReadmeCommand(
        "ANCE/model",
        "../drivers/run_warmup.py",
        "SEED_Encoder/SEED-Encoder.md",
        "run_warmup.py",
        256,
        HF,
    ),
    *(
        ReadmeCommand(
            "xtreme",
            f"third_party/run_{task}.py",
            f"scripts/train_{name}.sh",
            f"third_party/run_{task}.py",
            32,
            HF,
            {"BATCH_SIZE": "8", "GRAD_ACC": "4", "REPO": ".", "PWD": ".", "GPU": "0"},
        )
        for task, name in (("tag", "panx"), ("classify", "pawsx"), ("squad", "qa"))
    ),
    ReadmeCommand(
        "CodeBERT/GraphCodeBERT/codesearch",
        "run.py",
        "README.md",
        "python run.py",
        32,
        CODE,
        either=CODES,
    ),
    ReadmeCommand(
        "CodeBERT/CodeBERT/codesearch",
        "run_classifier.py",
        "README.md",
        "python run_classifier.py",
        32,
        HF,
    ),
    ReadmeCommand(
        "CodeBERT/CodeExecutor/pretrain",
        "run.py",
        "run.sh",
        "torch.distributed.launch",
        64,
        without(HF, "epochs") | {"sequence_length": "--block_size"},
        {"PER_NODE_GPU": "2"},
    ),
    ReadmeCommand(
        "CodeBERT/UniXcoder/downstream-tasks/code-search",
        "run.py",
        "README.md",
        "python run.py",
        64,
        CODE,
        either=CODES,
    ),
    ReadmeCommand(
        "CodeBERT/UniXcoder/downstream-tasks/clone-detection/BCB",
        "run.py",
        "run.sh",
        "python run.py",
        16,
        CODE | {"sequence_length": "--block_size"},
    ),
    ReadmeCommand(
        "CodeXGLUE/Code-Code/Clone-detection-POJ-104/code",
        "run.py",
        "../README.md",
        "python run.py",
        8,
        XGLUE,
    ),
    ReadmeCommand(
        "CodeXGLUE/Code-Code/Defect-detection/code",
        "run.py",
        "../README.md",
        "python run.py",
        32,
        XGLUE,
        either={"epochs": ("--epoch", "--num_train_epochs")},
    ),
    ReadmeCommand(
        "CodeXGLUE/Code-Code/code-refinement/code",
        "run.py",
        "../README.md",
        "python run.py",
        16,
        XGLUE,
        either={"sequence_length": ("--max_source_length", "--max_target_length")},
    ),
    ReadmeCommand(
        "CodeXGLUE/Text-Code/text-to-code/code",
        "run.py",
        "../README.md",
        "torch.distributed.launch",
        24,
        HF | {"sequence_length": "--block_size"},
        {"PER_NODE_GPU": "2"},
    ),
    ReadmeCommand(
        "CodeXGLUE/Code-Code/CodeCompletion-token/code",
        "run_lm.py",
        "../README.md",
        "torch.distributed.launch",
        16,
        HF | {"sequence_length": "--block_size"},
        {"PER_NODE_GPU": "2"},
    ),
    ReadmeCommand(
        "unilm/s2s-ft",
        "run_seq2seq.py",
        "README.md",
        "torch.distributed.launch",
        64,
        without(HF, "eval_batch", "sequence_length")
        | {"epochs": "--num_training_epochs", "max_steps": "--num_training_steps"},
        either={"sequence_length": ("--max_source_seq_length", "--max_target_seq_length", "")},
    ),
)
