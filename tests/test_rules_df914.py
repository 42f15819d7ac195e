"""DF914: The Trainer of transformers is asked in words that it has no more."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.rules import df914_words_gone_from_the_trainer as rule

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("today's words", """
        from transformers import Trainer, TrainingArguments
        args = TrainingArguments("out", eval_strategy="epoch", warmup_steps=0.1)
        trainer = Trainer(model, args, processing_class=tokenizer)
        """),
    ("words that a class of the script's own declares", """
        import transformers
        class Arguments(transformers.TrainingArguments):
            adafactor: bool = False
        training_args, = transformers.HfArgumentParser(Arguments).parse_args_into_dataclasses()
        training_args.logging_dir = "logs"
        print(training_args.adafactor, training_args.logging_dir)
        """),
    ("arguments of the script's own", """
        from transformers import Trainer
        from settings import TrainingArguments
        args = TrainingArguments("out", evaluation_strategy="epoch")
        """),
    ("a library's Trainer, and one that takes a tokenizer itself", """
        import transformers
        from speech import Trainer
        class Own(transformers.Trainer):
            def __init__(self, model, tokenizer):
                super().__init__(model, processing_class=tokenizer)
                self.tokenizer = tokenizer
            def compute_loss(self, model, inputs, **more):
                return super().compute_loss(model, inputs, **more)
            def log(self, logs, *more):
                print(self.tokenizer)
        Trainer(model, tokenizer=tokenizer)
        Own(model, tokenizer=tokenizer)
        """),
    ("objects of the script's own that are asked so", """
        from transformers import Trainer
        class Ranks:
            def is_world_master(self):
                return True
        if Ranks().is_world_master():
            Ranks().train(model_path="out")
        """),
    ("a switch whose value is not known", """
        from transformers import TrainingArguments
        args = TrainingArguments("out", group_by_length=flag)
        """),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("words that have another name", """
        from transformers import Seq2SeqTrainingArguments
        args = Seq2SeqTrainingArguments("out", evaluation_strategy="epoch", no_cuda=flag)
        """, """
        from transformers import Seq2SeqTrainingArguments
        args = Seq2SeqTrainingArguments("out", eval_strategy="epoch", use_cpu=flag)
        """),
    ("words that are left out, between others and at the end", """
        import transformers
        args = transformers.TrainingArguments(
            output_dir="out",
            overwrite_output_dir=True,
            logging_dir="logs",
            warmup_ratio=0.1,
            group_by_length=True,
            adafactor=False,
            fp16_opt_level="O1",
        )
        """, """
        import transformers
        args = transformers.TrainingArguments(
            output_dir="out",
            warmup_steps=0.1,
            train_sampling_strategy='group_by_length',
        )
        """),
    ("a Trainer's tokenizer, and that of a class below it", """
        from transformers import Trainer, Seq2SeqTrainer
        class Own(Seq2SeqTrainer):
            pass
        class Other(Own):
            def show(self):
                print(self.tokenizer)
        Trainer(model, args, tokenizer=tokenizer)
        Other(model, args, tokenizer=tokenizer)
        """, """
        from transformers import Trainer, Seq2SeqTrainer
        class Own(Seq2SeqTrainer):
            pass
        class Other(Own):
            def show(self):
                print(self.processing_class)
        Trainer(model, args, processing_class=tokenizer)
        Other(model, args, processing_class=tokenizer)
        """),
    ("what is read of the arguments of the command line", """
        from transformers import HfArgumentParser, TrainingArguments
        (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        if not training_args.overwrite_output_dir and not training_args.no_cuda:
            pass
        """, """
        from transformers import HfArgumentParser, TrainingArguments
        (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        if not getattr(training_args, 'overwrite_output_dir', False) and not training_args.use_cpu:
            pass
        """),
    ("what is read of the arguments that a script makes", """
        from transformers import TrainingArguments
        args = TrainingArguments("out", eval_strategy="epoch")
        if args.evaluation_strategy != "no" and args.evaluate_during_training:
            print(args.group_by_length)
        """, """
        from transformers import TrainingArguments
        args = TrainingArguments("out", eval_strategy="epoch")
        if args.eval_strategy != "no" and (args.eval_strategy != 'no'):
            print((args.train_sampling_strategy == 'group_by_length'))
        """),
    ("what a Trainer is asked behind the training", """
        from transformers import Trainer
        trainer = Trainer(model, args)
        trainer.train(model_path=path if resumes else None)
        if trainer.is_world_master():
            trainer.save_model()
        """, """
        from transformers import Trainer
        trainer = Trainer(model, args)
        trainer.train(resume_from_checkpoint=path if resumes else None)
        if trainer.is_world_process_zero():
            trainer.save_model()
        """),
    ("methods that do not take what they are passed", """
        from transformers import Trainer
        class Own(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                return model(**inputs).loss
            def training_step(self, model: Net, inputs: dict) -> Tensor:
                return super().training_step(model, inputs)
            def log(self, logs):
                print(logs)
        """, """
        from transformers import Trainer
        class Own(Trainer):
            loss_is_scaled_for_ga = False
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                return model(**inputs).loss
            def training_step(self, model: Net, inputs: dict, num_items_in_batch=None) -> Tensor:
                return super().training_step(model, inputs)
            def log(self, logs, start_time=None):
                print(logs)
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF914", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF914", before)
    assert fixed("DF914", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF914", after) == []


def test_what_has_no_word_of_today_is_only_told() -> None:
    text = """
        from transformers import TrainingArguments
        args = TrainingArguments("out")
        writer = SummaryWriter(args.logging_dir)
        """
    (told,) = found("DF914", textwrap.dedent(text))
    assert (told.because, told.edits) == ("TrainingArguments have no logging_dir", ())
    assert told.severity is Severity.DEGRADED


def test_the_installed_library_says_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    words = {each.name for each in dataclasses.fields(transformers.TrainingArguments)}
    assert words.isdisjoint({*rule.RENAMED, *rule.SWITCHES, *rule.LEFT_OUT})
    assert words >= {
        *rule.RENAMED.values(),
        *(each.partition("=")[0] for each in rule.SWITCHES.values()),
    }
    trainer = transformers.Trainer
    assert "tokenizer" not in inspect.signature(trainer).parameters
    assert not hasattr(trainer, "tokenizer")
    assert hasattr(trainer, rule.OWN_SCALE)
    assert not any(hasattr(trainer, name) for name in rule.ASKED)
    assert all(hasattr(trainer, name) for name in rule.ASKED.values())
    assert "resume_from_checkpoint" in inspect.signature(trainer.train).parameters
    for method, word in rule.PASSED.items():
        assert word in inspect.signature(getattr(trainer, method)).parameters
