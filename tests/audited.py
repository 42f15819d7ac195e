"""Programs and what the audit is to say of them: at lines that end in ``# here``."""

from __future__ import annotations

import textwrap

from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit

MAIN = "\n\nif __name__ == '__main__':\n    main()\n"


def program_of(text: str) -> Program:
    """A text as a program; a main guard is added where it has none."""
    text = textwrap.dedent(text).lstrip("\n")
    return Program(module(text if "__main__" in text else text + MAIN))


def audited(text: str) -> set[tuple[str, str, int]]:
    """Obligation, answer and line of each verdict on a text."""
    return {(each.code, each.answer.value, each.line) for each in audit(program_of(text))}


def by_number(first: str, second: str) -> str:
    """A program whose step takes its labels by two lines, from data that keep their order."""
    return f"""
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, DistributedSampler

        def main(model, data, clusters, optimizer, size):
            torch.distributed.init_process_group("gloo")
            model = DDP(model)
            sampler = DistributedSampler(data, shuffle=False)
            loader = DataLoader(data, sampler=sampler, batch_size=size)
            for epoch in range(3):
                for step, batch in enumerate(loader):
                    {first}
                    {second}
                    torch.nn.functional.cross_entropy(model(batch), labels).backward()
                    optimizer.step()
        """


# A name, a program, an obligation and what it says: holds, violated or unknown.
READ: list[tuple[str, str, str, str]] = [
    (
        "an import inside the function makes the name local above it",
        """
        import os
        def main():
            print(os.name)  # here
            import os
        """,
        "O1",
        "violated",
    ),
    (
        "the class that a method has by its name",
        """
        class Net:
            def main(self):
                return __class__.__name__
        def main():
            print(Net().main())  # here
        """,
        "O1",
        "holds",
    ),
    (
        "a name that another function binds",
        """
        def read():
            options = {"size": 4}
            return options
        def main():
            settings = read()
            print(options)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "names of the scopes around a place",
        """
        def outer(a):
            b = a
            def inner(c, d=lambda e: e + b):
                global made
                made = [f + g for f in c if (g := f)]
                return b, d
            class Local:
                size = 3
                other = size
            return inner, Local
        def main():
            print(outer(1), made)
        """,
        "O1",
        "holds",
    ),
    (
        "a name that an earlier statement binds",
        """
        def main():
            import os
            print(os.name)
        """,
        "O1",
        "holds",
    ),
    (
        "a name that is bound in one branch and read in the other",
        """
        def main(flag=True):
            if flag:
                folder = "out"
            else:
                print(folder)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that one of the branches binds",
        """
        def main(flag=True):
            if flag:
                folder = "out"
            print(folder)
        """,
        "O1",
        "holds",
    ),
    (
        "a name that rank 0 alone binds",
        """
        import torch
        def main():
            torch.distributed.init_process_group("nccl")
            rank = torch.distributed.get_rank()
            if rank == 0:
                best = 1
            print(best)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a keyword that is given twice",
        """
        def main():
            dict(a=1, a=2)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that nothing binds",
        """
        def main():
            print(os.name)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that a loop's later pass reads",
        """
        def main():
            for i in range(3):
                if i:
                    print(last)
                last = i
        """,
        "O1",
        "holds",
    ),
    (
        "a name of a comprehension",
        """
        def main(items=()):
            print([x for x in items], [y + 1 for y in items])
        """,
        "O1",
        "holds",
    ),
    (
        "a name that is asked for in a try",
        """
        def main():
            try:
                print(here)
            except NameError:
                here = 1
        """,
        "O1",
        "holds",
    ),
    (
        "one of two models that a loop trains is in no wrapper",
        """
        import torch
        def main(Body, Head, data):
            torch.distributed.init_process_group("gloo")
            head = torch.nn.parallel.DistributedDataParallel(Head())
            body = Body()
            optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()])
            loader = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for batch in loader:  # here
                head(body(batch)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "O2",
        "violated",
    ),
    (
        "a tensor that no model has is trained beside a wrapped model",
        """
        import torch
        def main(Head, data):
            torch.distributed.init_process_group("gloo")
            head = torch.nn.parallel.DistributedDataParallel(Head())
            scale = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([*head.parameters(), scale])  # here
            loader = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for batch in loader:
                (head(batch) * scale).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "O2",
        "violated",
    ),
    (
        "a loop whose model DDP wraps",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "holds",
    ),
    (
        "a loop whose model nothing wraps",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:  # here
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "violated",
    ),
    (
        "a model that FSDP wraps",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            model = FSDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "holds",
    ),
    (
        "gradients that are reduced by hand",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    for p in model.parameters():
                        dist.all_reduce(p.grad)
                        p.grad /= dist.get_world_size()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "holds",
    ),
    (
        "gradients that are only summed by hand",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    for p in model.parameters():
                        dist.all_reduce(p.grad)  # here
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "unknown",
    ),
    (
        "a wrapper that is passed on as a value",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            wrapper = DDP
            model = wrapper(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:  # here
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "unknown",
    ),
    (
        "a script of accelerate's, which wraps",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            from accelerate import Accelerator
            model = Accelerator().prepare(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O2",
        "holds",
    ),
    (
        "a sampler that learns the epoch in the caller",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler

        def one_epoch(model, loader, optimizer):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        def main(model, data, optimizer):
            dist.init_process_group("gloo")
            model = DDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                one_epoch(model, loader, optimizer)
        """,
        "O4",
        "holds",
    ),
    (
        "a sampler that never learns the epoch, as the caller counts",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler

        def one_epoch(model, loader, optimizer):
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        def main(model, data, optimizer):
            dist.init_process_group("gloo")
            model = DDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):  # here
                one_epoch(model, loader, optimizer)
        """,
        "O4",
        "violated",
    ),
    (
        "rank 0 alone tells its sampler the epoch, of epochs that a bar counts",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, DistributedSampler

        def main(model, data, optimizer):
            torch.distributed.init_process_group("gloo")
            model = DDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            epochs = bar(range(3))
            for epoch in epochs:
                if torch.distributed.get_rank() == 0:
                    sampler.set_epoch(epoch)  # here
                for batch in loader:
                    model(batch).mean().backward()
                    optimizer.step()
        def bar(epochs):
            return epochs
        """,
        "O4",
        "violated",
    ),
    (
        "labels that are taken by the number of the batch",
        by_number("start = step * size", "labels = clusters[start : start + len(batch)]  # here"),
        "O4",
        "violated",
    ),
    (
        "labels that come with the batch",
        by_number("start = step * size", "labels = batch[start % len(batch) :]"),
        "O4",
        "holds",
    ),
    (
        "a rate that the number of the step tells",
        by_number("rate = clusters[epoch * len(loader) + step]", "labels = batch"),
        "O4",
        "holds",
    ),
    (
        "a loader that a constant leaves out",
        """
        import torch
        from batches import packed
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, DistributedSampler

        def loader_of(data, is_packed, rank):
            if is_packed:
                sampler = packed(data, rank)
                loader = DataLoader(data, batch_sampler=sampler)
            else:
                sampler = DistributedSampler(data)
                loader = DataLoader(data, sampler=sampler)  # here
            return sampler, loader
        def main(model, data, optimizer):
            torch.distributed.init_process_group("gloo")
            model = DDP(model)
            is_packed = True
            sampler, loader = loader_of(data, is_packed, torch.distributed.get_rank())
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).mean().backward()
                    optimizer.step()
        """,
        "O4",
        "holds",
    ),
    (
        "data that every rank draws alike",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            sampler = RandomSampler(data)
            loader = DataLoader(data, sampler=sampler)  # here
            for epoch in range(3):
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O4",
        "violated",
    ),
    (
        "data that are dealt by hand",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            data = data[dist.get_rank() :: dist.get_world_size()]
            loader = DataLoader(data)
            for epoch in range(3):
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O4",
        "holds",
    ),
    (
        "random data with the rank in the seed",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            torch.manual_seed(7 + dist.get_rank())
            loader = DataLoader(data, shuffle=True)
            for epoch in range(3):
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O4",
        "holds",
    ),
    (
        "a sampler for ranks, and another for a lone process",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            alone = not dist.is_initialized()
            sampler = RandomSampler(data) if alone else DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O4",
        "holds",
    ),
    (
        "shuffling beside a sampler",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def main(model, data, optimizer):
            dist.init_process_group('gloo')
            model = DDP(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler, shuffle=True)  # here
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O4",
        "violated",
    ),
    (
        "a class inside the function goes to all ranks",
        """
        import torch.distributed as dist
        def main():
            dist.init_process_group("gloo")
            class Score:
                pass
            rows = []
            rows.append(Score())
            shares = [None] * dist.get_world_size()
            dist.all_gather_object(shares, rows)  # here
        """,
        "O9",
        "violated",
    ),
    (
        "a class of the module goes to all ranks",
        """
        import torch.distributed as dist
        class Score:
            pass
        def main():
            dist.init_process_group("gloo")
            shares = [None] * dist.get_world_size()
            dist.all_gather_object(shares, [Score()])
        """,
        "O9",
        "holds",
    ),
    (
        "a second process group",
        """
        import torch.distributed as dist
        def main():
            dist.init_process_group("gloo")
            dist.init_process_group("gloo")  # here
        """,
        "O10",
        "violated",
    ),
    (
        "a group that only an evaluation makes, which nothing calls",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel
        def eval():
            torch.distributed.init_process_group("gloo")  # here
        def main():
            net = torch.nn.Linear(2, 1)
            model = DistributedDataParallel(net) if torch.distributed.is_initialized() else net
            sampler = torch.utils.data.DistributedSampler(data)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in torch.utils.data.DataLoader(data, sampler=sampler):
                model(x).sum().backward()
                optimizer.step()
            model.eval()
        data = torch.randn(8, 2)
        main()
        """,
        "O10",
        "unknown",
    ),
    (
        "a group that is made unless there is one",
        """
        import torch.distributed as dist
        def main():
            dist.init_process_group("gloo")
            if not dist.is_initialized():
                dist.init_process_group("gloo")
        """,
        "O10",
        "holds",
    ),
    (
        "a share that is asked for before there is a group",
        """
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler
        def make(data):
            sampler = None if not dist.is_initialized() else DistributedSampler(data)  # here
            return DataLoader(data, sampler=sampler)
        loader = make([1, 2])
        if __name__ == "__main__":
            dist.init_process_group("gloo")
            print(loader)
        """,
        "O10",
        "violated",
    ),
    (
        "a share that is asked for behind the group",
        """
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler
        def make(data):
            sampler = None if not dist.is_initialized() else DistributedSampler(data)
            return DataLoader(data, sampler=sampler)
        examples = [1, 2]
        if __name__ == "__main__":
            dist.init_process_group("gloo")
            loader = make(examples)
        """,
        "O10",
        "holds",
    ),
    (
        "a group that is made with its wrapper, unless there is one",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        def main(model):
            if not dist.is_initialized():
                dist.init_process_group("gloo")
                model = DistributedDataParallel(model)
            return model
        """,
        "O10",
        "holds",
    ),
    (
        "a group in each of two branches",
        """
        import torch.distributed as dist
        def main(fast=True):
            if fast:
                dist.init_process_group("nccl")
            else:
                dist.init_process_group("gloo")
        """,
        "O10",
        "holds",
    ),
    (
        "ranks that the script starts itself",
        """
        import torch.distributed as dist
        import torch.multiprocessing as mp
        def worker(gpu):
            dist.init_process_group("gloo", rank=gpu)
        def main():
            mp.spawn(worker, nprocs=2)  # here
        """,
        "O10",
        "unknown",
    ),
    (
        "a barrier that rank 0 alone passes",
        """
        import torch.distributed as dist

        def main():
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                dist.barrier()  # here
        """,
        "O6",
        "violated",
    ),
    (
        "rank 0 first, with a barrier for each side",
        """
        import torch.distributed as dist

        def main():
            dist.init_process_group("gloo")
            if dist.get_rank() != 0:
                dist.barrier()
            load()
            if dist.get_rank() == 0:
                dist.barrier()
        def load():
            pass
        """,
        "O6",
        "holds",
    ),
    (
        "a function with a barrier, called by rank 0 and by all",
        """
        import torch.distributed as dist

        def meet():
            dist.barrier()
        def main():
            dist.init_process_group("gloo")
            meet()
            if dist.get_rank() == 0:
                meet()  # here
        """,
        "O6",
        "violated",
    ),
    (
        "a function with a barrier, called by rank 0 as the parameter that it is passed for",
        """
        import torch.distributed as dist

        def meet(model):
            dist.barrier()  # here
        def train(model, evaluate=meet):
            evaluate = evaluate
            if dist.get_rank() == 0:
                evaluate(model)
        def main(model):
            dist.init_process_group("gloo")
            train(model, evaluate=meet)
        """,
        "O6",
        "violated",
    ),
    (
        "rank 0 calls another function that it is passed",
        """
        import torch.distributed as dist

        def meet(model):
            dist.barrier()
        def show(model):
            print(model)
        def train(model, evaluate, report):
            evaluate(model)
            if dist.get_rank() == 0:
                report(model)
        def main(model):
            dist.init_process_group("gloo")
            train(model, meet, show)
        """,
        "O6",
        "holds",
    ),
    (
        "rank 0 calls a value that may be a function with a barrier",
        """
        import torch.distributed as dist

        def meet(model):
            dist.barrier()
        class Trainer:
            def __init__(self, model, evaluate):
                self.model, self.evaluate = model, evaluate
            def train(self):
                if dist.get_rank() == 0:
                    self.evaluate(self.model)  # here
        def main(model):
            dist.init_process_group("gloo")
            Trainer(model, meet).train()
        """,
        "O6",
        "unknown",
    ),
    (
        "a barrier under a test of options",
        """
        import torch.distributed as dist

        def main(args):
            dist.init_process_group("gloo")
            if args.distributed and args.do_eval:
                dist.barrier()
        """,
        "O6",
        "holds",
    ),
    (
        "a barrier under a test that a module decides which is not read",
        """
        import torch.distributed as dist
        from elsewhere import leads_main
        def main():
            dist.init_process_group("gloo")
            if leads_main(7):
                dist.barrier()  # here
        """,
        "O6",
        "unknown",
    ),
    (
        "an attack that a rank leaves once its own batch is misread",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def attacked(model, criterion, images, labels, args):
            found = images.clone()
            for number in range(args.passes):
                found.requires_grad_(True)
                scores = model(found)
                if (scores.argmax(1) != labels).all():  # here
                    break
                loss = criterion(scores, labels)
                loss.backward()
                found = (found + found.grad.sign()).detach()
            return found
        def main(args, model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for images, labels in loader:
                images, labels = images.to(args.device), labels.to(args.device)
                images = attacked(model, criterion, images, labels, args)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O6",
        "unknown",
    ),
    (
        "an evaluation to which all ranks come where one would",
        """
        import torch
        import torch.distributed as dist
        def on_any_rank(test):
            answer = torch.tensor(int(test))
            dist.all_reduce(answer)
            return bool(answer)
        def main(meter):
            dist.init_process_group("gloo")
            if on_any_rank(meter.avg < 3):
                dist.barrier()
        """,
        "O6",
        "holds",
    ),
    (
        "an attack that a rank leaves once the list of those left is empty",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def attacked(model, criterion, images, labels, args):
            for number in range(args.passes):
                images.requires_grad_(True)
                scores = model(images)
                left = []
                for index in range(len(labels)):
                    if scores[index].argmax() == labels[index]:
                        left.append(index)
                criterion(scores, labels).backward()
                if len(left) == 0:  # here
                    return images
                images = images.detach()[left]
            return images
        def main(args, model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for images, labels in loader:
                images = attacked(model, criterion, images, labels, args)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O6",
        "unknown",
    ),
    (
        "an evaluation that is shared out, by the loss of each rank",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def score(model):
            hits = torch.zeros(1)
            dist.all_reduce(hits)
            return hits
        def main(model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for epoch in range(9):
                loader.sampler.set_epoch(epoch)
                total = 0.0
                for images, labels in loader:
                    loss = criterion(model(images), labels)
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                if total < 3:
                    best = score(model)  # here
        """,
        "O6",
        "violated",
    ),
    (
        "a model that is loaded whole behind its wrapper",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def main(args, model, data, criterion, optimizer):
            torch.distributed.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            if args.resume:
                model = torch.load(args.resume)["model"]  # here
            for images, labels in loader:
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O2",
        "unknown",
    ),
    (
        "an attack that a rank leaves once none is left of its own batch",
        """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def attacked(model, criterion, images, labels, args):
            found = images.clone()
            for number in range(args.passes):
                found.requires_grad_(True)
                scores = model(found)
                index = torch.where(scores.argmax(1) == labels)[0]
                if len(index) == 0:  # here
                    break
                loss = criterion(scores, labels)
                loss.backward()
                found = (found + found.grad.sign()).detach()
            return found
        def main(args, model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for images, labels in loader:
                images, labels = images.to(args.device), labels.to(args.device)
                images = attacked(model, criterion, images, labels, args)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O6",
        "unknown",
    ),
    (
        "an attack that all ranks leave without an example",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def attacked(model, criterion, images, labels, args):
            found = images.clone()
            for number in range(args.passes):
                found.requires_grad_(True)
                scores = model(found)
                if len(labels) == 0:  # here
                    break
                loss = criterion(scores, labels)
                loss.backward()
                found = (found + found.grad.sign()).detach()
            return found
        def main(args, model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for images, labels in loader:
                images, labels = images.to(args.device), labels.to(args.device)
                images = attacked(model, criterion, images, labels, args)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O6",
        "holds",
    ),
    (
        "an attack that all ranks leave at the same pass",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def attacked(model, criterion, images, labels, args):
            found = images.clone()
            for number in range(args.passes):
                found.requires_grad_(True)
                scores = model(found)
                if number + 1 == args.enough:  # here
                    break
                loss = criterion(scores, labels)
                loss.backward()
                found = (found + found.grad.sign()).detach()
            return found
        def main(args, model, data, criterion, optimizer):
            dist.init_process_group("gloo")
            loader = DataLoader(data, 4, sampler=DistributedSampler(data))
            model = DistributedDataParallel(model)
            for images, labels in loader:
                images, labels = images.to(args.device), labels.to(args.device)
                images = attacked(model, criterion, images, labels, args)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
        """,
        "O6",
        "holds",
    ),
    (
        "a file that every rank writes",
        """
        import torch.distributed as dist

        def main(frame):
            dist.init_process_group("gloo")
            frame.to_csv("scores.csv")  # here
        """,
        "O7",
        "violated",
    ),
    (
        "a function of the program that is called as a library's writer is",
        """
        import torch
        import torch.distributed as dist

        def save_model(model, path):
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), path)

        def main(model, path):
            dist.init_process_group("gloo")
            save_model(model, path)
        """,
        "O7",
        "holds",
    ),
    (
        "a file that no call asks for",
        """
        import torch.distributed as dist

        def score(frame, save=False):
            if save:
                frame.to_csv("scores.csv")
            return frame.mean()

        def main(frame):
            dist.init_process_group("gloo")
            score(frame)
        """,
        "O7",
        "holds",
    ),
    (
        "a file of each rank",
        """
        import torch.distributed as dist

        def main(frame):
            dist.init_process_group("gloo")
            frame.to_csv(f"scores_{dist.get_rank()}.csv")
        """,
        "O7",
        "holds",
    ),
    (
        "a path that names the rank in the caller",
        """
        import torch.distributed as dist

        def write(frame, path):
            frame.to_csv(path)
        def main(frame):
            dist.init_process_group("gloo")
            name = "scores_" + str(dist.get_rank())
            write(frame, name + ".csv")
        """,
        "O7",
        "holds",
    ),
    (
        "a path that gets the rank under a test, in a caller that calls it alike",
        """
        import torch.distributed as dist

        def stream(path):
            return open(path, "a")
        def main(folder, distributed_rank):
            dist.init_process_group("gloo")
            path = folder + "/log.txt"
            if distributed_rank > 0:
                path = path + f".{distributed_rank}"
            stream(path)
        """,
        "O7",
        "holds",
    ),
    (
        "a method of the program that is called as a library's writer is",
        """
        import torch
        import torch.distributed as dist

        class Net:
            def save_model(self, path, rank):
                if rank == 0:
                    torch.save(self.net.state_dict(), path)

        def train(net):
            net.save_model("net.pt", dist.get_rank())

        def main():
            dist.init_process_group("gloo")
            train(Net())
        """,
        "O7",
        "holds",
    ),
    (
        "a log file whose writer asks the group before it is made",
        """
        import logging
        import os
        import torch.distributed as dist

        def is_first():
            return not dist.is_initialized() or dist.get_rank() == 0

        def start_log(path):
            handler = logging.FileHandler(path if is_first() else os.devnull)  # here

        def main():
            start_log("log.txt")
            dist.init_process_group("gloo")
        """,
        "O7",
        "unknown",
    ),
    (
        "a log file whose writer asks the launcher",
        """
        import logging
        import os
        import torch.distributed as dist

        def is_first():
            return not dist.is_initialized() or dist.get_rank() == 0

        def start_log(path):
            first = os.environ.get("RANK", "0") == "0"
            handler = logging.FileHandler(path if first else os.devnull)

        def main():
            start_log("log.txt")
            dist.init_process_group("gloo")
        """,
        "O7",
        "holds",
    ),
    (
        "a log file whose writer asks the group behind it",
        """
        import logging
        import os
        import torch.distributed as dist

        def is_first():
            return not dist.is_initialized() or dist.get_rank() == 0

        def start_log(path):
            handler = logging.FileHandler(path if is_first() else os.devnull)

        def main():
            dist.init_process_group("gloo")
            start_log("log.txt")
        """,
        "O7",
        "holds",
    ),
    (
        "a file in memory",
        """
        import torch.distributed as dist
        import io
        import torch
        def main(model):
            dist.init_process_group("gloo")
            buffer = io.BytesIO()
            torch.save(model, buffer)
        """,
        "O7",
        "holds",
    ),
    (
        "a file that rank 0 writes and all read",
        """
        import torch.distributed as dist
        import torch
        def main(model):
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                torch.save(model, "model.pt")
            torch.load("model.pt")  # here
        """,
        "O7",
        "violated",
    ),
    (
        "a cache that is written where it is missing, and else read",
        """
        import os
        import torch.distributed as dist
        import torch
        def main(model):
            dist.init_process_group("gloo")
            if not os.path.exists("cache.pt"):
                if dist.get_rank() == 0:
                    torch.save(model, "cache.pt")
            else:
                torch.load("cache.pt")
        """,
        "O7",
        "holds",
    ),
    (
        "a cache that the next pass of a loop reads",
        """
        import os
        import torch.distributed as dist
        import torch
        def main(model):
            dist.init_process_group("gloo")
            for part in range(3):
                if not os.path.exists("cache.pt"):
                    if dist.get_rank() == 0:
                        torch.save(model, "cache.pt")
                else:
                    torch.load("cache.pt")  # here
        """,
        "O7",
        "violated",
    ),
    (
        "the same with a barrier between",
        """
        import torch.distributed as dist
        import torch
        def main(model):
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                torch.save(model, "model.pt")
            dist.barrier()
            torch.load("model.pt")
        """,
        "O7",
        "holds",
    ),
    (
        "a folder that may be there",
        """
        import torch.distributed as dist
        from pathlib import Path
        def main():
            dist.init_process_group("gloo")
            Path("out").mkdir(exist_ok=True)
            try:
                Path("logs").mkdir()
            except FileExistsError:
                pass
        """,
        "O7",
        "holds",
    ),
    (
        "a flag that a match on the rank sets",
        """
        import torch.distributed as dist
        import torch
        def main(model):
            dist.init_process_group("gloo")
            chosen = False
            match dist.get_rank():
                case 0:
                    chosen = True
            if chosen:
                torch.save(model, "model.pt")
        """,
        "O7",
        "holds",
    ),
    (
        "a file that a test keeps which is not read",
        """
        import torch.distributed as dist
        from elsewhere import leads_main
        import torch
        def main(model):
            dist.init_process_group("gloo")
            if leads_main(dist.get_rank()):
                torch.save(model, "model.pt")  # here
        """,
        "O7",
        "unknown",
    ),
    (
        "a second backward that is not scaled",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for batch in loader:
                loss = model(batch)
                scaler.scale(loss).backward()
                model(-batch).backward()  # here
                scaler.step(optimizer)
                scaler.update()
        """,
        "O3",
        "violated",
    ),
    (
        "two backwards that are both scaled",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for batch in loader:
                loss = model(batch)
                scaler.scale(loss).backward()
                scaler.scale(model(-batch)).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
        "O3",
        "holds",
    ),
    (
        "a scaled backward or a plain one, as an option says",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for batch in loader:
                loss = model(batch)
                if args.fp16:
                    scaler.scale(loss).backward()
                else:
                    loss.backward()
                if args.fp16:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
        """,
        "O3",
        "holds",
    ),
    (
        "clipping behind unscaling",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for batch in loader:
                loss = model(batch)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
        import torch
        """,
        "O3",
        "holds",
    ),
    (
        "clipping what has been stepped on",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for batch in loader:
                optimizer.zero_grad()
                scaler.scale(model(batch)).backward()
                scaler.step(optimizer)
                scaler.update()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        import torch
        """,
        "O3",
        "holds",
    ),
    (
        "clipping between two steps, where gradients are accumulated",
        """
        from torch.amp import GradScaler
        def main(args, model, loader, optimizer):
            scaler = GradScaler()
            for i, batch in enumerate(loader):
                scaler.scale(model(batch)).backward()
                if (i + 1) % args.accumulation == 0:
                    scaler.step(optimizer)
                    scaler.update()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
        import torch
        """,
        "O3",
        "violated",
    ),
    (
        "an evaluation five times an epoch of one process",
        """
        import torch
        def main(Net, data, batch_size, evaluate):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(
                data, batch_size=batch_size, sampler=torch.utils.data.DistributedSampler(data))
            every = len(data) // (5 * batch_size)
            for step, batch in enumerate(loader):
                model(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step % every == 0:  # here
                    evaluate(model)
        """,
        "O5",
        "unknown",
    ),
    (
        "an evaluation five times an epoch of a rank",
        """
        import torch
        def main(Net, data, batch_size, evaluate):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(
                data, batch_size=batch_size, sampler=torch.utils.data.DistributedSampler(data))
            every = len(loader) // 5
            for step, batch in enumerate(loader):
                model(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step % every == 0:  # here
                    evaluate(model)
        """,
        "O5",
        "holds",
    ),
    (
        "a decision by what each rank draws for itself",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return x + torch.randn_like(x)
        def score(model, loader):
            model.eval()
            total = 0.0
            with torch.no_grad():
                for batch in loader:  # here
                    total += model(batch).mean().item()
            return total
        def main(data, epochs):
            torch.distributed.init_process_group("gloo")
            loader = torch.utils.data.DataLoader(data)
            net = Net()
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters())
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            dealt = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for epoch in range(epochs):
                dealt.sampler.set_epoch(epoch)
                for batch in dealt:
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                schedule.step(score(net, loader))
        """,
        "O6",
        "unknown",
    ),
    (
        "a decision by an evaluation that draws nothing",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return x + x.mean()
        def score(model, loader):
            model.eval()
            total = 0.0
            with torch.no_grad():
                for batch in loader:  # here
                    total += model(batch).mean().item()
            return total
        def main(data, epochs):
            torch.distributed.init_process_group("gloo")
            loader = torch.utils.data.DataLoader(data)
            net = Net()
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters())
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            dealt = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for epoch in range(epochs):
                dealt.sampler.set_epoch(epoch)
                for batch in dealt:
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                schedule.step(score(net, loader))
        """,
        "O6",
        "holds",
    ),
    (
        "what each rank draws and prints",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return x + torch.randn_like(x)
        def score(model, loader):
            model.eval()
            total = 0.0
            with torch.no_grad():
                for batch in loader:  # here
                    total += model(batch).mean().item()
            return total
        def main(data, epochs):
            torch.distributed.init_process_group("gloo")
            loader = torch.utils.data.DataLoader(data)
            net = Net()
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters())
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            dealt = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for epoch in range(epochs):
                dealt.sampler.set_epoch(epoch)
                for batch in dealt:
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                print(score(net, loader))
        """,
        "O6",
        "holds",
    ),
    (
        "noise of the training alone",
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return x + (torch.randn_like(x) if self.training else 0)
        def score(model, loader):
            model.eval()
            total = 0.0
            with torch.no_grad():
                for batch in loader:  # here
                    total += model(batch).mean().item()
            return total
        def main(data, epochs):
            torch.distributed.init_process_group("gloo")
            loader = torch.utils.data.DataLoader(data)
            net = Net()
            model = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(model.parameters())
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            dealt = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            for epoch in range(epochs):
                dealt.sampler.set_epoch(epoch)
                for batch in dealt:
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                schedule.step(score(net, loader))
        """,
        "O6",
        "holds",
    ),
    (
        "half of an epoch of all examples, rounded",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(data, batch_size=batch_size,
                sampler=torch.utils.data.DistributedSampler(data))
            batches = len(data) / batch_size
            for epoch in range(epochs):
                loader.sampler.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    if step % int(0.5 * batches) == 0: print(step)  # here
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "a step's number by the epochs of all examples",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(data, batch_size=batch_size,
                sampler=torch.utils.data.DistributedSampler(data))
            batches = len(data) // batch_size
            for epoch in range(epochs):
                loader.sampler.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    print(batches * epoch + step)  # here
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "a step's number by the epochs of a rank",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(data, batch_size=batch_size,
                sampler=torch.utils.data.DistributedSampler(data))
            batches = len(loader)
            for epoch in range(epochs):
                loader.sampler.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    print(batches * epoch + step)  # here
                    model(batch).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "batches of a rank that end before the loader begins anew",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            every = len(data) // batch_size
            for step in range(epochs * every):
                if step % every == 0:  # here
                    batches = iter(torch.utils.data.DataLoader(data, batch_size=batch_size,
                        sampler=torch.utils.data.DistributedSampler(data)))
                model(next(batches)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "O5",
        "violated",
    ),
    (
        "as many batches of all examples, of which a rank has fewer",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(data, batch_size=batch_size,
                sampler=torch.utils.data.DistributedSampler(data))
            number = (len(data) + batch_size - 1) // batch_size
            for epoch in range(epochs):
                batches = iter(loader)
                loader.sampler.set_epoch(epoch)
                for step in range(number):  # here
                    model(next(batches)).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "violated",
    ),
    (
        "a loader that begins anew when a rank's batches end",
        """
        import torch
        def main(Net, data, batch_size, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            every = len(data) // (batch_size * torch.distributed.get_world_size())
            for step in range(epochs * every):
                if step % every == 0:  # here
                    batches = iter(torch.utils.data.DataLoader(data, batch_size=batch_size,
                        sampler=torch.utils.data.DistributedSampler(data)))
                model(next(batches)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "a rank's own number of steps, divided by the ranks under its own name",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        def main(Net, data, epochs):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            optimizer = torch.optim.SGD(model.parameters())
            loader = torch.utils.data.DataLoader(
                data, sampler=torch.utils.data.DistributedSampler(data))
            total = len(loader) * epochs
            if torch.distributed.is_initialized():
                total = total // torch.distributed.get_world_size()
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            for batch in loader:
                model(batch).sum().backward()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        """,
        "O5",
        "violated",
    ),
    (
        "a horizon of optimizer steps",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = len(loader) // args.accumulation * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon that is divided under another name",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = len(loader) // n * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O5",
        "holds",
    ),
    (
        "a schedule that steps for each micro-batch of a step",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            total = len(loader) * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / args.accumulation
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        for _ in range(args.accumulation):
                            scheduler.step()
        """,
        "O5",
        "holds",
    ),
    (
        "a schedule that steps once at the end of a step",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            total = len(loader) * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / args.accumulation
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
        """,
        "O5",
        "violated",
    ),
    (
        "a warm-up by hand in steps of all examples",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def main(args, model, data, optimizer):
            dist.init_process_group('gloo')
            model = DistributedDataParallel(model)
            sizes = {x: len(data[x]) for x in ('train', 'test')}
            data = data['train']
            loader = DataLoader(data, args.batch, sampler=DistributedSampler(data))
            steps = round(sizes['train'] / args.batch) * args.warm_epochs
            warm_up = 0.1
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    warm_up = min(1.0, warm_up + 0.9 / steps)  # here
                    loss = model(batch) * warm_up
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "a warm-up by hand in steps of a rank's own",
        """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torch.utils.data import DataLoader, DistributedSampler
        def main(args, model, data, optimizer):
            dist.init_process_group('gloo')
            model = DistributedDataParallel(model)
            loader = DataLoader(data, args.batch, sampler=DistributedSampler(data))
            steps = len(loader) * args.warm_epochs
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    rate = min(1.0, epoch / steps)
                    loss = model(batch) * rate
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon that is divided by an accumulation of 2, as many as there may be ranks",
        """
        from torch.optim.lr_scheduler import OneCycleLR
        from torch.utils.data import DataLoader, DistributedSampler
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        def main(args, model, data, optimizer):
            dist.init_process_group('gloo')
            model = DistributedDataParallel(model)
            loader = DataLoader(data, args.size, sampler=DistributedSampler(data))
            n = 2
            scheduler = OneCycleLR(optimizer, 0.1, total_steps=args.epochs * len(loader) // n)
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % n == 0:
                        optimizer.step()
                        scheduler.step()
                        optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon divided by an accumulation that is a quotient",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            accumulation = 64 // args.size
            loader = DataLoader(data, batch_size=args.size, shuffle=True)
            total = len(loader) // accumulation * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for step, batch in enumerate(loader):
                model(batch).sum().backward()
                if (step + 1) % accumulation == 0:
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon divided twice by an accumulation that is a quotient",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            accumulation = 64 // args.size
            loader = DataLoader(data, batch_size=args.size, shuffle=True)
            total = len(loader) // accumulation // accumulation * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            for step, batch in enumerate(loader):
                model(batch).sum().backward()
                if (step + 1) % accumulation == 0:
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "violated",
    ),
    (
        "a horizon of micro-batches",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = len(loader) * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O5",
        "violated",
    ),
    (
        "a horizon that is divided twice, by two names",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = len(loader) // n // args.accumulation * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O5",
        "violated",
    ),
    (
        "an optimizer that plans with all data, counted where they are loaded",
        """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
        from old_bert import SelfScheduling
        def load(args, examples):
            features = [each.ids for each in examples]
            steps = int(len(features) / args.batch_size * args.epochs)
            pass
            ids = torch.tensor([each.ids for each in features])
            data = TensorDataset(ids, torch.arange(len(ids)))
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.batch_size)
            return features, loader, steps
        def planned(model, steps):
            return SelfScheduling(model.parameters(), lr=0.1, t_total=steps)  # here
        def main(args, Net, examples):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            features, loader, steps = None, None, None
            if args.train:
                features, loader, steps = load(args, examples)
            optimizer = planned(model, steps)
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "violated",
    ),
    (
        "an optimizer that plans with a rank's part",
        """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
        from old_bert import SelfScheduling
        def load(args, examples):
            features = [each.ids for each in examples]
            steps = int(len(features) / args.batch_size * args.epochs)
            steps = steps // torch.distributed.get_world_size()
            ids = torch.tensor([each.ids for each in features])
            data = TensorDataset(ids, torch.arange(len(ids)))
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.batch_size)
            return features, loader, steps
        def planned(model, steps):
            return SelfScheduling(model.parameters(), lr=0.1, t_total=steps)
        def main(args, Net, examples):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            features, loader, steps = None, None, None
            if args.train:
                features, loader, steps = load(args, examples)
            optimizer = planned(model, steps)
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon of examples that may be those of the loader",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size, sampler=DistributedSampler(data))
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        def main(args, Net, processor, optimizer):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            total = int(len(processor.examples()) / args.size) * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            train(args, model, processor.load(), optimizer)
        """,
        "O5",
        "unknown",
    ),
    (
        "a horizon of as many examples as an option says, by one rank's batch",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader, DistributedSampler
        def main(args, model, data, optimizer):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(model)
            loader = DataLoader(data, batch_size=args.size, sampler=DistributedSampler(data))
            total = args.examples / args.size * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "a horizon of a length that is passed on, by a batch that the loader's maker is passed",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader, DistributedSampler
        def make(data, size=8):
            return DataLoader(data, batch_size=size, sampler=DistributedSampler(data))
        def plan(args, optimizer, number):
            total = number // args.size * args.epochs
            return get_linear_schedule_with_warmup(optimizer, 0, total)  # here
        def main(args, model, data, other, optimizer):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(model)
            scheduler = plan(args, optimizer, len(data))
            loader, small = make(data, size=args.size), make(other)
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "a horizon by a batch that the loader's maker is passed for one kind of data",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader, DistributedSampler
        def make(data, size):
            return DataLoader(data, batch_size=size, sampler=DistributedSampler(data))
        def build(args, kind):
            rows = torch.load(args.data[kind])
            size = args.size if kind == "train" else args.eval_size
            return rows, make(rows, size)
        def main(args, model, optimizer):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(model)
            rows, loader = build(args, "train")
            total = int(len(rows[0]) / args.size * args.epochs)
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)  # here
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
        """,
        "O5",
        "unknown",
    ),
    (
        "such a horizon of a rank's part",
        """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size, sampler=DistributedSampler(data))
            for epoch in range(args.epochs):
                loader.sampler.set_epoch(epoch)
                for batch in loader:
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        def main(args, Net, processor, optimizer):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(Net())
            ranks = torch.distributed.get_world_size()
            total = int(len(processor.examples()) / args.size / ranks) * args.epochs
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            train(args, model, processor.load(), optimizer)
        """,
        "O5",
        "holds",
    ),
    (
        "a horizon that is an option",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = args.max_steps
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O5",
        "holds",
    ),
    (
        "logging with each optimizer step",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = args.max_steps
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                        if steps % args.every == 0:
                            print(loss)
        """,
        "O8",
        "holds",
    ),
    (
        "logging with each micro-batch",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = args.max_steps
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                    if steps % args.every == 0:  # here
                        print(loss)
        """,
        "O8",
        "violated",
    ),
    (
        "logging that asks for the step too",
        """
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def main(args, model, data, optimizer):
            loader = DataLoader(data, batch_size=args.size)
            n = args.accumulation
            total = args.max_steps
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            steps = 0
            for epoch in range(args.epochs):
                for step, batch in enumerate(loader):
                    loss = model(batch) / n
                    loss.backward()
                    if (step + 1) % args.accumulation == 0:
                        optimizer.step()
                        scheduler.step()
                        steps += 1
                    if (step + 1) % args.accumulation == 0 and steps % args.every == 0:
                        print(loss)
        """,
        "O8",
        "holds",
    ),
    (
        "a writer that other ranks do not have",
        """
        import torch.distributed as dist
        from torch.utils.tensorboard import SummaryWriter
        def main():
            dist.init_process_group("gloo")
            writer = None
            if dist.get_rank() == 0:
                writer = SummaryWriter("log")
            writer.close()  # here
        """,
        "O8",
        "violated",
    ),
    (
        "a writer that is asked for first",
        """
        import torch.distributed as dist
        from torch.utils.tensorboard import SummaryWriter
        def main():
            dist.init_process_group("gloo")
            writer = None
            if dist.get_rank() == 0:
                writer = SummaryWriter("log")
            if writer is not None:
                writer.close()
            if writer:
                writer.flush()
        """,
        "O8",
        "holds",
    ),
    (
        "a wrapper's state, where a lone process saves the bare one",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(args, model):
            if args.local_rank != -1:
                torch.distributed.init_process_group("gloo")
                model = DDP(model)
            if args.local_rank in (-1, 0):
                torch.save(model.state_dict(), "model.pt")  # here
        """,
        "O12",
        "violated",
    ),
    (
        "the state of the module in the wrapper",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(args, model):
            if args.local_rank != -1:
                torch.distributed.init_process_group("gloo")
                model = DDP(model)
            if args.local_rank in (-1, 0):
                torch.save(getattr(model, "module", model).state_dict(), "model.pt")
        """,
        "O12",
        "holds",
    ),
    (
        "the state of the bare model under a name of its own",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(args, model):
            if args.local_rank != -1:
                torch.distributed.init_process_group("gloo")
                wrapped = DDP(model)
            if args.local_rank in (-1, 0):
                torch.save(model.state_dict(), "model.pt")
        """,
        "O12",
        "holds",
    ),
    (
        "a wrapper's state that is loaded into the wrapper",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(args, model):
            torch.distributed.init_process_group("gloo")
            model = DDP(model)
            model.load_state_dict(torch.load("model.pt"))
            if torch.distributed.get_rank() == 0:
                torch.save(model.state_dict(), "model.pt")
        """,
        "O12",
        "holds",
    ),
    (
        "keys that DataParallel has given `module.` before",
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(args, model):
            if args.local_rank != -1:
                torch.distributed.init_process_group("gloo")
                model = DDP(model)
            else:
                model = torch.nn.DataParallel(model)
            if args.local_rank in (-1, 0):
                torch.save(model.state_dict(), "model.pt")
        """,
        "O12",
        "holds",
    ),
    (
        "a horizon by the number of ranks, or by 1 in a lone process",
        """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        from torch.nn.parallel import DistributedDataParallel as DDP
        from transformers import get_linear_schedule_with_warmup
        def main(args, model, data, optimizer):
            torch.distributed.init_process_group("gloo")
            model = DDP(model)
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
            total = len(data) // (args.size * ranks) * 3
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                optimizer.step()
                scheduler.step()
        """,
        "O5",
        "holds",
    ),
]
