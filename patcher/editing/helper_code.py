"""Functions and classes that a patched script may carry.

This file is read as text and never imported by the patcher: a patched script holds copies, so that
it needs torch and nothing of ddpfix. A comment behind a parameter list would travel too.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import inspect
import io
import itertools
import json
import os
import pickle
import random
import shutil
import sys

import torch
import tree_sitter


def is_main_process():
    """Tell whether this process is rank 0, or the only one."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def over_ranks(model, **options):
    """The model, its gradients averaged over the ranks; itself where none are computed."""
    if not (torch.is_grad_enabled() and torch.distributed.is_initialized()):
        return model
    ddp = getattr(over_ranks, "ddp", None)
    if ddp is None or ddp.module is not model:
        ddp = torch.nn.parallel.DistributedDataParallel(model, **options)
        over_ranks.ddp = ddp
    return ddp


def same_weights(optimizer):
    """Give all ranks the weights that rank 0's optimizer steps."""
    if not torch.distributed.is_initialized():
        return
    is_on_cards = torch.distributed.get_backend() == "nccl"
    device = torch.cuda.current_device() if is_on_cards else "cpu"
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            weights = parameter.detach().to(device).contiguous()
            torch.distributed.broadcast(weights, 0)
            parameter.data.copy_(weights)


def average_gradients(optimizer):
    """Make the gradients that an optimizer steps by their mean over the ranks."""
    if not torch.distributed.is_initialized():
        return
    if not getattr(optimizer, "began_alike", False):
        optimizer.began_alike = True
        same_weights(optimizer)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    has_gradient = [int(parameter.grad is not None) for parameter in parameters]
    having = torch.tensor(has_gradient, device=parameters[0].device)
    torch.distributed.all_reduce(having)
    for number, ranks in enumerate(having.tolist()):
        if ranks:
            parameter = parameters[number]
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            total = grad.detach().contiguous()
            torch.distributed.all_reduce(total)
            parameter.grad = total.div_(torch.distributed.get_world_size())


def first_on_main(make):
    """What make gives; rank 0 makes it before the others, who find the files that it wrote."""
    if not torch.distributed.is_initialized():
        return make()
    made = make() if torch.distributed.get_rank() == 0 else None
    torch.distributed.barrier()
    return made if torch.distributed.get_rank() == 0 else make()


def meet_in_folder_of_rank_0():
    """Change into the folder that rank 0 works in, which hydra has named by its clock."""
    if torch.distributed.is_initialized():
        folder = [os.getcwd()]
        torch.distributed.broadcast_object_list(folder)
        os.makedirs(folder[0], exist_ok=True)  # of another machine, perhaps
        os.chdir(folder[0])


def share_of_batches(batches):
    """The batches of this rank: ranks take turns, and share the last ones if too few are left."""
    if not torch.distributed.is_initialized():
        return batches
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    batches = iter(batches)
    rounds = iter(lambda: list(itertools.islice(batches, world_size)), [])
    return ((each * world_size)[rank] for each in rounds)


def share_of_drawn(drawn):
    """A rank's part of what all ranks have drawn alike; all of it where it is to evaluate."""
    if not torch.distributed.is_initialized() or not torch.is_grad_enabled():
        return drawn
    rank, size = torch.distributed.get_rank(), len(drawn) // torch.distributed.get_world_size()
    return drawn[rank * size : (rank + 1) * size]


def draw_alike():
    """Let all ranks draw the random numbers that rank 0 would draw next."""
    if not torch.distributed.is_initialized():
        return
    numpy = sys.modules.get("numpy")
    states = [random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()]
    device = None
    if torch.distributed.get_backend() == "nccl" and torch.cuda.current_device() == 0:
        number = int(os.environ.get("LOCAL_RANK", torch.distributed.get_rank()))
        device = torch.device("cuda", number % torch.cuda.device_count())  # none is chosen yet
    torch.distributed.broadcast_object_list(states, device=device)
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if numpy:
        numpy.random.set_state(states[2])


def draw_apart():
    """Let ranks draw other random numbers of torch than rank 0, which draws on."""
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        torch.manual_seed(int(torch.randint(2**31, ())) + torch.distributed.get_rank())


class DrawnApart(torch.utils.data.Dataset):
    """A data set that draws its examples at random, on each rank others than on rank 0."""

    def __init__(self, dataset):
        self.dataset, self.rank = dataset, torch.distributed.get_rank()
        self.states, self.seed = None, None

    def __getitem__(self, index):
        if not self.rank:
            return self.dataset[index]
        kept = self._states()
        if self.seed != torch.initial_seed():  # of this process, or of a worker
            self.seed = torch.initial_seed()
            drawn = random.getrandbits(31) + int(torch.randint(2**31, ())) + self.rank
            random.seed(drawn)
            torch.default_generator.manual_seed(drawn)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(drawn % 2**32)
        else:
            self._go_on(self.states)
        try:
            return self.dataset[index]
        finally:
            self.states = self._states()
            self._go_on(kept)

    def _states(self):
        numpy = sys.modules.get("numpy")
        drawn = numpy and numpy.random.get_state()
        return random.getstate(), torch.get_rng_state(), drawn

    def _go_on(self, states):
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if states[2]:
            sys.modules["numpy"].random.set_state(states[2])

    def __len__(self):
        return len(self.dataset)

    def __getattr__(self, name):
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class DealtSampler(torch.utils.data.distributed.DistributedSampler):
    """Deals among the ranks what a sampler of torch draws, which all of them draw alike."""

    def __init__(self, sampler):
        super().__init__(sampler, shuffle=False)

    def __iter__(self):
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(self.seed + self.epoch)
        drawn = list(self.dataset)
        torch.set_rng_state(state)
        return iter([drawn[position] for position in super().__iter__()])

    def __getattr__(self, name):
        if name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)  # as the indices of what it deals


class DealtBatches:
    """Deals among the ranks, by whole batches, what a sampler draws on rank 0."""

    def __init__(self, sampler, together=1, *, ends=True):
        self.sampler, self.together, self.ends = sampler, together, ends

    def __iter__(self):
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        drawn, turn = self.sampler, self.together * world_size
        if self.ends:
            whole = [list(drawn)]
            torch.distributed.broadcast_object_list(whole)
            (drawn,) = whole
            missing = -len(drawn) % turn  # ranks take equally many batches
            drawn += list(itertools.islice(itertools.cycle(drawn), missing))
        drawn = iter(drawn)
        for each in iter(lambda: list(itertools.islice(drawn, turn)), []):
            yield from each[self.together * rank :][: self.together]

    def __len__(self):
        turn = self.together * torch.distributed.get_world_size()
        return -(-len(self.sampler) // turn) * self.together

    def __getattr__(self, name):
        if name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)


def sum_of_ranks(loss):
    """A loss that sums over a batch, for gradients that are averaged over the ranks."""
    if not torch.distributed.is_initialized():
        return loss
    return loss * torch.distributed.get_world_size()


def save_on_main(obj, path, **options):
    """torch.save by rank 0 alone; the file appears whole or not at all."""
    if is_main_process():
        folder, name = os.path.split(path)
        partial = os.path.join(folder, ".partial")
        os.makedirs(partial, exist_ok=True)
        torch.save(obj, os.path.join(partial, name), **options)
        os.replace(os.path.join(partial, name), path)
        shutil.rmtree(partial)  # a run that was killed may have left another file in it


def onto_own_card(storage, place):
    """Where torch.load puts what lay on rank 0's card: on this rank's. Else where it was."""
    is_rank = torch.distributed.is_initialized()
    return storage.cuda() if is_rank and place.startswith("cuda") else None


@contextlib.contextmanager
def staging_folder(folder):
    """A folder for files that appear in another folder once all of them are complete."""
    beside = os.path.join(folder, ".partial")
    shutil.rmtree(beside, ignore_errors=True)  # a run that was killed may have left one
    os.makedirs(beside, exist_ok=True)
    yield beside
    for path, _, names in os.walk(beside):
        target = os.path.normpath(os.path.join(folder, os.path.relpath(path, beside)))
        os.makedirs(target, exist_ok=True)
        for name in names:
            os.replace(os.path.join(path, name), os.path.join(target, name))
    shutil.rmtree(beside)


def write_on_main(path, mode, write):
    """Let write fill a file on rank 0 alone; it appears whole or not at all."""
    if is_main_process():
        partial = f"{path}.partial"
        with open(partial, mode) as file:
            write(file)
        os.replace(partial, path)


def shard_of_batches(dataset, batch_size):
    """Indices of this rank's share of the batches: whole batches, in order, none twice."""
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    batches = -(-len(dataset) // batch_size)
    start, stop = batches * rank // world_size, batches * (rank + 1) // world_size
    return range(start * batch_size, min(stop * batch_size, len(dataset)))


def over_all_examples(loader):
    """The loader; where it deals its examples among the ranks, one of all of them, in order."""
    sampler = getattr(loader, "sampler", None)
    if not isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
        return loader
    names = ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "worker_init_fn")
    options = {name: getattr(loader, name) for name in names}
    if isinstance(sampler.dataset, torch.utils.data.Sampler):  # what it deals: of a part, perhaps
        options["sampler"] = sampler.dataset
    return torch.utils.data.DataLoader(loader.dataset, **options)


def gathered(value):
    """What all ranks accumulated, on every rank: lists joined in rank order, numbers added."""
    if not torch.distributed.is_initialized():
        return value
    items = value if isinstance(value, list) else [value]
    items = [(x.cpu(), x.is_cuda) if torch.is_tensor(x) else (x, False) for x in items]
    some = items[:: len(items) // 16 + 1]
    size = len(pickle.dumps(some)) * len(items) // max(1, len(some))
    pieces = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(pieces, 1 + size // 2**24)  # of 16 MiB
    pieces, shares = max(pieces), [[] for _ in pieces]
    for piece in range(pieces):
        parts, rank = [None] * len(shares), torch.distributed.get_rank()
        own = items[len(items) * piece // pieces : len(items) * (piece + 1) // pieces]
        torch.distributed.all_gather_object(parts, own)
        for other, share in enumerate(shares):
            share.extend(own if other == rank else parts[other])
    whole = [x.cuda() if on_card else x for share in shares for x, on_card in share]
    return whole if isinstance(value, list) else sum(whole[1:], whole[0])


def what_rank_0_has(value):
    """What rank 0 has come to, on every rank, which may have come to something else."""
    if not torch.distributed.is_initialized():
        return value
    whole, file = [], io.BytesIO()
    if torch.distributed.get_rank() == 0:
        torch.save(value, file)
        data = file.getvalue()
        whole = [data[start : start + 2**24] for start in range(0, len(data), 2**24)]
    count = [len(whole)]
    torch.distributed.broadcast_object_list(count)
    for number in range(count[0]):
        piece = [whole[number] if whole else None]
        torch.distributed.broadcast_object_list(piece)
        file.write(piece[0])
    if torch.distributed.get_rank() == 0:
        return value
    file.seek(0)
    return torch.load(file, map_location=onto_own_card, weights_only=False)


def grammar_of(path, name):
    """A grammar: of the library at path for a tree_sitter that takes one, else of its package."""
    if hasattr(tree_sitter.Language, "build_library"):
        return tree_sitter.Language(path, name)
    package = importlib.import_module(f"tree_sitter_{name}")
    make = getattr(package, "language", None) or getattr(package, f"language_{name}")
    return tree_sitter.Language(make())


def use_grammar(parser, grammar):
    """Let a parser parse it, whichever tree_sitter is there."""
    if hasattr(parser, "set_language"):
        parser.set_language(grammar)
    else:
        parser.language = grammar


def weighed_by_tokens(loss, tokens):
    """A mean over so many tokens, weighed so that ranks average to the mean over all of theirs."""
    if not torch.distributed.is_initialized():
        return loss
    total = tokens.float().clone()
    torch.distributed.all_reduce(total)
    return loss * (tokens * torch.distributed.get_world_size() / total)


def mean_of_ranks(value):
    """The mean of a number over all ranks, the same on each of them."""
    if not torch.distributed.is_initialized():
        return value
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, float(value))
    return sum(values) / len(values)


def averages_of_rank_0(model):
    """Let all ranks evaluate with rank 0's averages of batch norm, which are those it saves."""
    if torch.distributed.is_initialized():
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                torch.distributed.broadcast(buffer, 0)


def on_any_rank(test):
    """Whether a test holds on at least one rank: the same answer on each of them."""
    if not torch.distributed.is_initialized():
        return test
    answers = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(answers, bool(test))
    return any(answers)


def with_other_ranks(vectors, rows):
    """Rows that belong to vectors, and behind them the other ranks'; without gradients as given."""
    if not torch.distributed.is_initialized() or not vectors.requires_grad:
        return rows
    shares = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(shares, rows.contiguous())
    rank = torch.distributed.get_rank()
    return torch.cat((*shares[rank:], *shares[:rank]))


class WithOtherRanks(torch.autograd.Function):
    """Vectors and behind them the other ranks', through all of which gradients flow."""

    @staticmethod
    def forward(ctx, vectors):
        if not torch.distributed.is_initialized() or not ctx.needs_input_grad[0]:
            return vectors.view_as(vectors)
        shares = [torch.empty_like(vectors) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(shares, vectors.contiguous())
        rank = torch.distributed.get_rank()
        return torch.cat((*shares[rank:], *shares[:rank]))

    @staticmethod
    def backward(ctx, gradient):
        if not torch.distributed.is_initialized():
            return gradient
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        shares = gradient.chunk(world_size)
        total = torch.stack((*shares[world_size - rank :], *shares[: world_size - rank]))
        torch.distributed.all_reduce(total)
        return total[rank]


def pairwise_mask(mask):
    """A mask (batch, query, key) as it is added to attention scores; another one as it is."""
    if mask is None or mask.dim() != 3:
        return mask
    return (1.0 - mask[:, None].float()) * -10000.0


def heads_to_prune(heads, n_heads, head_size, already_pruned_heads):
    """The heads that are left to prune, and the indices of the weights that stay."""
    heads = set(heads) - already_pruned_heads
    gone = {head - sum(pruned < head for pruned in already_pruned_heads) for head in heads}
    stay = [i for i in range(n_heads * head_size) if i // head_size not in gone]
    return heads, torch.tensor(stay, dtype=torch.long)


def whitespace_tokenize(text):
    """The words of a text, as transformers.models.bert.tokenization_bert split them."""
    return text.split()


def is_tf_available():
    """Whether models for TensorFlow are there: transformers has none since version 5."""
    return False


def load_with_drawn(load, build, names, args, options):
    """A model as it is loaded; what its checkpoint lacks of some attributes, as it is constructed.

    transformers 5 constructs it on no device, and leaves them as they lie in memory.
    """
    model, told = load(*args, **{**options, "output_loading_info": True})
    known = inspect.signature(build.__init__).parameters
    own = {key: value for key, value in options.items() if key in known and key != "config"}
    state = torch.get_rng_state()
    drawn = build(model.config, *args[1:], **own)
    torch.set_rng_state(state)
    loaded = model.state_dict().keys() - set(told["missing_keys"])
    tensors = dict([*drawn.named_parameters(), *drawn.named_buffers()])
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if key not in loaded and key.split(".")[0] in names:
                tensor.copy_(tensors[key])
    for name in names:
        if isinstance(vars(drawn).get(name), torch.Tensor):
            setattr(model, name, vars(drawn)[name])
    return (model, told) if options.get("output_loading_info") else model


class BertAdamW(torch.optim.Optimizer):
    """AdamW as transformers had it: BERT's, without correction of the bias, on demand."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.0,
        correct_bias=True,
        no_deprecation_warning=False,
    ):
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "correct_bias": correct_bias})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    moments = {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
                    state.update(moments, step=0)
                state["step"] += 1
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                square.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                size = group["lr"]
                if group["correct_bias"]:
                    size *= (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
                p.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-size)
                p.add_(p, alpha=-group["lr"] * group["weight_decay"])
        return loss


class InputExample:
    """An example of a sequence classification, as transformers.InputExample was."""

    def __init__(self, guid, text_a, text_b=None, label=None):
        self.guid, self.text_a, self.text_b, self.label = guid, text_a, text_b, label

    def __repr__(self):
        return f"InputExample({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def __eq__(self, other):
        return type(other) is type(self) and vars(other) == vars(self)

    def to_json_string(self):
        return json.dumps(vars(self), indent=2) + "\n"


class InputFeatures:
    """An example as numbers, as transformers.InputFeatures was."""

    def __init__(self, input_ids, attention_mask=None, token_type_ids=None, label=None):
        self.input_ids, self.attention_mask = input_ids, attention_mask
        self.token_type_ids, self.label = token_type_ids, label

    def to_json_string(self):
        return json.dumps(vars(self)) + "\n"


class DataProcessor:
    """The base of processors of sequence classification sets, as transformers had it."""

    def get_example_from_tensor_dict(self, tensor_dict):
        raise NotImplementedError()

    def get_train_examples(self, data_dir):
        raise NotImplementedError()

    def get_dev_examples(self, data_dir):
        raise NotImplementedError()

    def get_test_examples(self, data_dir):
        raise NotImplementedError()

    def get_labels(self):
        raise NotImplementedError()

    def tfds_map(self, example):
        if len(self.get_labels()) > 1:
            example.label = self.get_labels()[int(example.label)]
        return example

    @classmethod
    def _read_tsv(cls, input_file, quotechar=None):
        with open(input_file, encoding="utf-8-sig") as file:
            return list(csv.reader(file, delimiter="\t", quotechar=quotechar))


def loss_share(step, loader, accumulation):
    """The part of its optimizer step's examples that micro-batch number step holds."""
    batches = loader.batch_sampler
    size = batches.batch_size
    total = len(batches) * size if batches.drop_last else len(batches.sampler)
    first = step - step % accumulation
    return min(size, total - step * size) / min(size * accumulation, total - first * size)


def micro_steps(optimizer_steps, loader, accumulation):
    """Micro-batches that so many optimizer steps take, when the rest of an epoch steps too."""
    epochs, rest = divmod(optimizer_steps, -(-len(loader) // accumulation))
    return epochs * len(loader) + rest * accumulation


class SharedBatchSampler(torch.utils.data.BatchSampler):
    """The batches of a lone process, in rank 0's order, each dealt out among the ranks.

    A rank that would get nothing of a short batch takes an example of it, with weight 0.
    """

    def __iter__(self):
        if not torch.distributed.is_initialized():
            yield from super().__iter__()
            return
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        order = [list(super().__iter__())]
        torch.distributed.broadcast_object_list(order)
        for batch in order[0]:
            yield batch[rank::world_size] or batch[:1]

    def weight(self, number):
        """What makes the ranks' losses of batch number (from 0) average to that of all of it."""
        if not torch.distributed.is_initialized():
            return 1
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        number %= len(self)  # a cycle counts on
        size = min(self.batch_size, len(self.sampler) - number * self.batch_size)
        return len(range(rank, size, world_size)) * world_size / size
